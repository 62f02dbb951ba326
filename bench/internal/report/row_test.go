package report

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/bench/internal/harness"
)

var rtt64 = harness.Case{Kind: harness.RTT, Size: 64, Conns: 1}

const (
	nearLine = 100 * time.Nanosecond
	farLine  = 450 * time.Nanosecond
)

// sampleOf returns a turn with the given median and round trips of the cache line.
func sampleOf(p50 float64, before, after time.Duration) Sample {
	return Sample{
		Metrics:    []harness.Metric{{Name: harness.P50, Unit: "µs", Value: p50}},
		LineBefore: before, LineAfter: after,
	}
}

func find(t *testing.T, rows []Row, contender string, distance Distance) Row {
	t.Helper()
	row, ok := (&Report{Rows: rows}).Find(rtt64, contender, distance, harness.P50)
	require.True(t, ok, "no row of %s, %s", contender, distance)
	return row
}

func TestRatiosAreTakenRoundByRound(t *testing.T) {
	// Each round slows both contenders equally, so the ratio is always 2.
	var rounds []Round
	for _, slow := range []float64{1, 10, 3} {
		rounds = append(rounds, Round{Samples: []Sample{sampleOf(slow, 0, 0), sampleOf(2*slow, 0, 0)}})
	}
	rows := Summarize(rtt64, []string{harness.Baseline, "other"}, rounds)
	require.Len(t, rows, 2)
	require.Equal(t, 1.0, *find(t, rows, harness.Baseline, All).Ratio)
	other := find(t, rows, "other", All)
	require.Equal(t, 2.0, *other.Ratio)
	require.InDelta(t, 6, other.Median, 1e-9)
	require.InDelta(t, 2.8, other.Lo, 1e-9)
	require.InDelta(t, 17.2, other.Hi, 1e-9)
	require.Equal(t, []float64{2, 20, 6}, other.Values)
}

// TestRatiosToUnixSockets: the second reference is like the first, but either may be missing.
func TestRatiosToUnixSockets(t *testing.T) {
	var rounds []Round
	for _, slow := range []float64{1, 10, 3} {
		rounds = append(rounds, Round{Samples: []Sample{sampleOf(slow, nearLine, nearLine), sampleOf(4*slow, nearLine, nearLine)}})
	}
	rows := Summarize(rtt64, []string{harness.UnixSocket, "other"}, rounds)
	other := find(t, rows, "other", All)
	require.Nil(t, other.Ratio)
	require.Equal(t, 4.0, *other.Unix)
	outcomes := (&Report{Rows: rows}).Judge(targetsOf(t, "sdp-shm rtt/64B p50 all <= 0.5 unix"))
	require.Empty(t, outcomes, "it was not measured")
	rows = Summarize(rtt64, []string{"sdp-shm", harness.UnixSocket}, rounds)
	outcomes = (&Report{Rows: rows}).Judge(targetsOf(t, "sdp-shm rtt/64B p50 all <= 0.3 unix 0.2 unix"))
	require.Len(t, outcomes, 1)
	require.True(t, outcomes[0].Met)
	require.False(t, outcomes[0].AimMet)
	require.Equal(t, 0.25, outcomes[0].Measured.Value)
}

func TestWithoutBaselineThereIsNoRatio(t *testing.T) {
	rows := Summarize(rtt64, []string{"other"}, []Round{{Samples: []Sample{sampleOf(1, 0, 0)}}})
	require.Nil(t, find(t, rows, "other", All).Ratio)
}

func TestNearAndFarHaveRowsWhereBothOccurred(t *testing.T) {
	var rounds []Round
	add := func(line time.Duration, tcp, other float64) {
		rounds = append(rounds, Round{Samples: []Sample{sampleOf(tcp, line, line), sampleOf(other, line, line)}})
	}
	for range minRounds {
		add(nearLine, 10, 1)
		add(farLine, 30, 15)
	}
	// The distance changed during the other contender's turn.
	rounds = append(rounds, Round{Samples: []Sample{sampleOf(10, nearLine, nearLine), sampleOf(99, nearLine, farLine)}})
	names := []string{harness.Baseline, "other"}
	rows := Summarize(rtt64, names, rounds)
	near, far := find(t, rows, "other", Near), find(t, rows, "other", Far)
	require.Equal(t, []float64{1, 1, 1, 1, 1}, near.Values)
	require.InDelta(t, 0.1, *near.Ratio, 1e-9)
	require.InDelta(t, 0.5, *far.Ratio, 1e-9)
	require.Len(t, find(t, rows, "other", All).Values, 2*minRounds+1)

	// Without the last far round there are too few far ones.
	rows = Summarize(rtt64, names, slices.Delete(rounds, 2*minRounds-1, 2*minRounds))
	for _, row := range rows {
		require.Equal(t, All, row.Distance)
	}
}

func TestRatioRequiresBothSidesAtTheDistance(t *testing.T) {
	var rounds []Round
	for i := range 2 * minRounds {
		line := nearLine
		if i%2 == 1 {
			line = farLine
		}
		// The baseline was far in every round.
		rounds = append(rounds, Round{Samples: []Sample{sampleOf(10, farLine, farLine), sampleOf(1, line, line)}})
	}
	rows := Summarize(rtt64, []string{harness.Baseline, "other"}, rounds)
	require.Nil(t, find(t, rows, "other", Near).Ratio)
	require.InDelta(t, 0.1, *find(t, rows, "other", Far).Ratio, 1e-9)
}

func TestMetricThatSomeRoundsLackHasNoRow(t *testing.T) {
	with := sampleOf(1, 0, 0)
	with.Metrics = append(with.Metrics, harness.Metric{Name: harness.P99, Unit: "µs", Value: 2})
	rows := Summarize(rtt64, []string{harness.Baseline}, []Round{{Samples: []Sample{with}}, {Samples: []Sample{sampleOf(1, 0, 0)}}})
	require.Len(t, rows, 1)
}

func TestLeastDisturbedRoundsAreKept(t *testing.T) {
	rounds := func(foreign ...float64) (all []Round) {
		for _, f := range foreign {
			all = append(all, Round{Foreign: f})
		}
		return all
	}
	for _, c := range []struct {
		all, kept []float64
		want      Kept
	}{
		{[]float64{0, 0.01}, []float64{0, 0.01}, Kept{Rounds: 2}},
		{[]float64{0.9, 0, 0.5, 0.01}, []float64{0, 0.01}, Kept{Rounds: 2, Dropped: 2}},
		{[]float64{0.01, 0.9, 0}, []float64{0.01, 0}, Kept{Rounds: 2, Dropped: 1}}, // in the original order
		{[]float64{0.9, 0, 0.5, 0.4}, []float64{0, 0.4}, Kept{Rounds: 2, Disturbed: 1, Dropped: 2}},
		{[]float64{0.9}, []float64{0.9}, Kept{Rounds: 1, Disturbed: 1}}, // no time was left for more
		{nil, nil, Kept{}},
	} {
		t.Run(fmt.Sprint(c.all), func(t *testing.T) {
			kept, count := Keep(rounds(c.all...), 2)
			require.Equal(t, rounds(c.kept...), kept)
			count.Foreign = 0
			require.Equal(t, c.want, count)
		})
	}
}

func TestLineRowsSeparateNearAndFar(t *testing.T) {
	lines := []time.Duration{0} // zero means not measured
	for range minRounds {
		lines = append(lines, nearLine)
	}
	rows := LineRows(append(lines, farLine, farLine)) // too few far ones
	require.Len(t, rows, 2)
	require.Equal(t, All, rows[0].Distance)
	require.Len(t, rows[0].Values, minRounds+2)
	require.Equal(t, Near, rows[1].Distance)
	require.InDelta(t, 0.1, rows[1].Median, 1e-9)
}

func TestQuantileInterpolates(t *testing.T) {
	values := []float64{4, 1, 3, 2}
	require.Equal(t, 1.0, quantile(values, 0))
	require.Equal(t, 2.5, quantile(values, 0.5))
	require.InDelta(t, 3.7, quantile(values, 0.9), 1e-9)
	require.Equal(t, 4.0, quantile(values, 1))
	require.Equal(t, []float64{4, 1, 3, 2}, values)
	require.Equal(t, 7.0, quantile([]float64{7}, 0.9))
}

func TestNumbersHaveThreeDigits(t *testing.T) {
	for value, text := range map[float64]string{
		0: "0", 0.12345: "0.123", 12.345: "12.3", 1234.5: "1234", 43210: "43.2k", 1.5e6: "1.5M", 2.5e9: "2.5G", 0.00012: "1.2e-04",
	} {
		require.Equal(t, text, number(value))
	}
}
