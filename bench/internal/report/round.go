// Package report turns what turns have shown into rows, and rows into JSON,
// Markdown, pictures, and verdicts.
package report

import (
	"cmp"
	"slices"
	"time"

	"github.com/gosdp/gosdp/bench/internal/harness"
)

// A Round is one turn of each contender, in their order.
type Round struct {
	Samples []Sample
	// Foreign is the part of all processors' time, from 0 to 1, that went to
	// something else than the benchmark.
	Foreign float64
}

// A Sample is what one turn has come to.
type Sample struct {
	Metrics []harness.Metric
	// LineBefore and LineAfter are the cache line's round trips beside the turn,
	// zero where they are not known.
	LineBefore, LineAfter time.Duration
}

// Distance says how far apart the two processors are.
type Distance string

const (
	All  Distance = "all" // any
	Near Distance = "near"
	Far  Distance = "far"
)

// FarLine is the round trip of a cache line from which on processors count as
// far from each other. Through a cache that both share it takes 0.05 to 0.15 µs,
// otherwise 0.3 to 1 µs.
const FarLine = 250 * time.Nanosecond

// DistanceOf is the distance that a round trip shows.
func DistanceOf(line time.Duration) Distance {
	switch {
	case line == 0:
		return All
	case line < FarLine:
		return Near
	default:
		return Far
	}
}

// distance is that of the whole turn, All if it has changed meanwhile.
func (s Sample) distance() Distance {
	if before := DistanceOf(s.LineBefore); before == DistanceOf(s.LineAfter) {
		return before
	}
	return All
}

// value returns the metric of that name.
func (s Sample) value(name string) (float64, bool) {
	for _, m := range s.Metrics {
		if m.Name == name {
			return m.Value, true
		}
	}
	return 0, false
}

// ForeignLimit is the part of the processors' time above which a round counts as
// disturbed. The kernel's clock of 10 ms alone moves a short round by a few
// hundredths.
const ForeignLimit = 0.10

// Disturbed tells whether something else used the machine.
func (r Round) Disturbed() bool { return r.Foreign > ForeignLimit }

// Kept says what became of a case's rounds.
type Kept struct {
	Rounds    int     `json:"rounds"`    // that count
	Disturbed int     `json:"disturbed"` // of those, because there were too few quiet ones
	Dropped   int     `json:"dropped"`   // that do not count, because they were disturbed
	Foreign   float64 `json:"foreign"`   // the median over those that count
}

// Keep chooses want rounds, the least disturbed ones, in the order in which they
// were. Undisturbed rounds are all kept.
func Keep(rounds []Round, want int) ([]Round, Kept) {
	order := make([]int, len(rounds))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Compare(rounds[a].Foreign, rounds[b].Foreign)
	})
	quiet := 0
	for _, r := range rounds {
		if !r.Disturbed() {
			quiet++
		}
	}
	order = order[:min(len(order), max(want, quiet))]
	slices.Sort(order)
	var kept []Round
	var foreign []float64
	for _, i := range order {
		kept = append(kept, rounds[i])
		foreign = append(foreign, rounds[i].Foreign)
	}
	if len(kept) == 0 {
		return nil, Kept{}
	}
	return kept, Kept{
		Foreign:   quantile(foreign, 0.5),
		Rounds:    len(kept),
		Disturbed: max(0, len(kept)-quiet),
		Dropped:   len(rounds) - len(kept),
	}
}
