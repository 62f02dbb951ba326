package report

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/bench/internal/harness"
)

func targetsOf(t *testing.T, text string) []Target {
	t.Helper()
	targets, err := ReadTargets(strings.NewReader(text))
	require.NoError(t, err)
	return targets
}

func TestTargetsAreJudgedOnTheirSideOfTheBound(t *testing.T) {
	r := reportOf(rowOf("sdp-iwarp", 2, 2, 2))
	for text, met := range map[string]bool{
		"<= 2 tcp":    true,
		"<= 1.99 tcp": false,
		">= 2 tcp":    true,
		">= 2.01 tcp": false,
	} {
		outcomes := r.Judge(targetsOf(t, "sdp-iwarp rtt/64B p50 all "+text))
		require.Len(t, outcomes, 1)
		require.Equal(t, met, outcomes[0].Met, text)
	}
}

func TestTargetOfTheLineAndOfTheMetricItself(t *testing.T) {
	row := rowOf("sdp-shm", 0.24, 0.24, 0.24)
	row.Ratios = []float64{0.03, 0.03, 0.03}
	row.finish()
	line := Row{Case: LineCase, Contender: LineContender, Distance: All, Metric: harness.P50, Median: 0.2}
	r := reportOf(row, line)

	outcome := r.Judge(targetsOf(t, "sdp-shm rtt/64B p50 all <= 0.0625 tcp 1.3 line"))[0]
	require.True(t, outcome.Met)
	require.True(t, outcome.AimMet)
	require.Equal(t, "0.03 × tcp", outcome.Measured.String())
	require.Equal(t, "met, and the aim", outcome.Verdict())

	outcome = r.Judge(targetsOf(t, "sdp-shm rtt/64B p50 all <= 0.3 abs 1.1 line"))[0]
	require.True(t, outcome.Met)
	require.False(t, outcome.AimMet)
	require.Equal(t, "0.24", outcome.Measured.String())
	require.Equal(t, "met", outcome.Verdict())

	outcome = r.Judge(targetsOf(t, "sdp-shm rtt/64B p50 all <= 1.1 line"))[0]
	require.Equal(t, "not met", outcome.Verdict())
	require.InDelta(t, 1.2, outcome.Measured.Value, 1e-9)
}

func TestTargetOfTheLimitAndBeyondTheBaseline(t *testing.T) {
	row := rowOf("sdp-shm", 30, 30, 30)
	row.Limit = median([]float64{1.25})
	tcp := rowOf(harness.Baseline, 20, 20, 20)
	tcp.Contender = harness.Baseline
	r := reportOf(row, tcp)
	outcomes := r.Judge(targetsOf(t, "sdp-shm rtt/64B p50 all <= 1.4 limit 1.2 limit\nsdp-shm rtt/64B p50 all <= 9 tcp+"))
	require.Len(t, outcomes, 2)
	require.Equal(t, "met", outcomes[0].Verdict())
	require.Equal(t, "1.25 × limit", outcomes[0].Measured.String())
	require.Equal(t, "not met", outcomes[1].Verdict())
	require.Equal(t, "tcp + 10", outcomes[1].Measured.String())
}

func TestTargetWithoutARowIsNotJudged(t *testing.T) {
	targets := targetsOf(t, "# a comment\n\nsdp-iwarp rtt/64B p99 all <= 1 tcp\nsdp-shm rtt/64B p50 all <= 1 tcp\n")
	require.Len(t, targets, 2)
	require.Empty(t, reportOf(rowOf("sdp-iwarp", 1, 1, 1)).Judge(targets))
}

func TestTargetOfAFailedContenderHasFailed(t *testing.T) {
	r := someReport()
	r.Failed = append(r.Failed, Failure{"sdp-shm", "rtt/64B", "lost"})
	targets := targetsOf(t, "sdp-shm rtt/64B p50 all <= 1 tcp\nsdp-shm rtt/4KB p50 all <= 1 tcp\nsdp-iwarp rtt/64B p50 all <= 3 tcp")
	outcomes := r.Judge(targets)
	require.Len(t, outcomes, 2)
	require.Equal(t, "failed", outcomes[0].Verdict())
	require.Equal(t, "met", outcomes[1].Verdict())
	var out bytes.Buffer
	require.NoError(t, r.WriteTables(&out, targets))
	require.Regexp(t, `(?m)^rtt/64B +sdp-shm +all +p50 +≤ 1 × tcp +– +failed`, out.String())
	out.Reset()
	require.NoError(t, r.WriteMarkdown(&out, targets, nil, nil))
	require.Contains(t, out.String(), "| `sdp-shm` | rtt/64B | p50 | all | ≤ 1 × tcp |  | – | failed |")
}

func TestMissedTargetsAreListed(t *testing.T) {
	r := reportOf(rowOf("sdp-iwarp", 2, 2, 2))
	require.NoError(t, r.Missed(targetsOf(t, "sdp-iwarp rtt/64B p50 all <= 2 tcp")))
	err := r.Missed(targetsOf(t, "sdp-iwarp rtt/64B p50 all <= 2 tcp\nsdp-iwarp rtt/64B p50 all <= 1 tcp"))
	require.EqualError(t, err, "1 of 2 targets are not met:\nrtt/64B, sdp-iwarp, p50: 2 × tcp, must be ≤ 1 × tcp")
	require.Error(t, r.Missed(nil), "nothing was checked")
}

func TestInvalidTargetsAreErrors(t *testing.T) {
	for _, text := range []string{
		"sdp-iwarp rtt/64B p50 all <= 1",
		"pigeons rtt/64B p50 all <= 1 tcp",
		"sdp-iwarp rtt/63B p50 all <= 1 tcp",
		"sdp-iwarp rtt/64B p50 beyond <= 1 tcp",
		"sdp-iwarp rtt/64B p50 all < 1 tcp",
		"sdp-iwarp rtt/64B p50 all <= one tcp",
		"sdp-iwarp rtt/64B p50 all <= 1 udp",
		"sdp-iwarp rtt/64B p50 all <= 1 tcp 2",
		"sdp-iwarp rtt/64B p50 all <= 1 tcp two tcp",
	} {
		_, err := ReadTargets(strings.NewReader("\n" + text))
		require.ErrorContains(t, err, "line 2: ", text)
	}
}
