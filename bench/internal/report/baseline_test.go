package report

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/bench/internal/harness"
)

func reportOf(rows ...Row) *Report { return &Report{Rows: rows} }

var (
	slow   = []float64{2.0, 2.1, 2.2, 2.05, 2.15, 2.12, 2.07, 2.01, 2.11}
	fast   = []float64{1.0, 1.1, 1.2, 1.05, 1.15, 1.12, 1.07, 1.01, 1.11}
	either = []float64{1.0, 2.1, 1.2, 2.05, 1.15, 2.12, 1.07, 2.01, 1.11}
)

func TestChangeThatRoundsAgreeOnIsSignificant(t *testing.T) {
	changes := Compare(reportOf(rowOf("sdp-iwarp", slow...)), reportOf(rowOf("sdp-iwarp", fast...)))
	require.Len(t, changes, 1)
	require.True(t, changes[0].Significant())
	require.True(t, changes[0].OfRatios)
	require.InDelta(t, 1.1/2.1, changes[0].Factor(), 1e-9)

	changes = Compare(reportOf(rowOf("sdp-iwarp", fast...)), reportOf(rowOf("sdp-iwarp", either...)))
	require.False(t, changes[0].Significant())
	changes = Compare(reportOf(rowOf("sdp-iwarp", fast...)), reportOf(rowOf("sdp-iwarp", fast...)))
	require.False(t, changes[0].Significant())
}

func TestSlowerMachineDoesNotChangeRatios(t *testing.T) {
	slower := rowOf("sdp-iwarp", slow...)
	slower.Ratios = fast
	slower.finish()
	require.False(t, Compare(reportOf(rowOf("sdp-iwarp", fast...)), reportOf(slower))[0].Significant())
	// The baseline's ratio is always 1, so its values are compared.
	changes := Compare(reportOf(rowOf(harness.Baseline, fast...)), reportOf(rowOf(harness.Baseline, slow...)))
	require.False(t, changes[0].OfRatios)
	require.True(t, changes[0].Significant())
}

func TestRowsInOneReportOnlyAreNotCompared(t *testing.T) {
	require.Empty(t, Compare(reportOf(rowOf("tcp", 1)), reportOf(rowOf("unix", 1))))
}

func TestWriteChanges(t *testing.T) {
	var out bytes.Buffer
	changes := Compare(
		reportOf(rowOf("tcp", fast...), rowOf("sdp-iwarp", slow...)),
		reportOf(rowOf("tcp", fast...), rowOf("sdp-iwarp", fast...)))
	require.NoError(t, WriteChanges(&out, changes))
	require.Regexp(t, `(?m)^rtt/64B +sdp-iwarp +all +p50 +2.1 +1.1 +µs `, out.String())
	require.NotRegexp(t, `(?m)^rtt/64B +tcp`, out.String())
	require.Contains(t, out.String(), "1 of 2 rows have changed")
	require.Contains(t, out.String(), "2 of their 4 medians lie between the other's lo and hi; in 1 rows both do")
}
