package report

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/bench/internal/harness"
)

// TestSummarySaysWhatIsGained, as times as fast whether less or more is better, and nothing of what was not measured.
func TestSummarySaysWhatIsGained(t *testing.T) {
	of := func(contender string, kind harness.Kind, size int, metric, unit string, value, ratio float64) Row {
		row := rowOf(contender, value, value, value)
		row.Case, row.Size, row.Metric, row.Unit, row.Ratio = kind, size, metric, unit, &ratio
		return row
	}
	r := reportOf(
		of("tcp", harness.RTT, 64, harness.P50, "µs", 12, 1), of("sdp-shm", harness.RTT, 64, harness.P50, "µs", 3, 0.25), of("sdp-iwarp", harness.RTT, 64, harness.P50, "µs", 24, 2),
		of("tcp", harness.Stream, 64<<10, harness.BytesPerS, "B/s", 2000, 1), of("sdp-shm", harness.Stream, 64<<10, harness.BytesPerS, "B/s", 5000, 2.5),
	)
	var out bytes.Buffer
	require.NoError(t, r.WriteSummary(&out))
	require.Regexp(t, `^round trip of 64 bytes +net 12\S* µs +sdp 3\S* µs +4\.0 times as fast *\nstream of 64 KB Writes +net 2\S* B/s +sdp 5\S* B/s +2\.5 times as fast *\n$`, out.String())
}

// TestGainsAreMeasured by a quick run.
func TestGainsAreMeasured(t *testing.T) {
	measured := make(map[string]harness.Kind)
	for _, c := range harness.Quick {
		measured[c.Name()] = c.Kind
	}
	for _, g := range gains {
		require.Contains(t, measured, g.load)
		require.Equal(t, g.metric, headline[measured[g.load]], g.load)
	}
}
