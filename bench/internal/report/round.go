// Package report summarizes turns as rows, and writes rows as JSON, Markdown and
// charts. It also judges whether targets are met.
package report

import (
	"cmp"
	"slices"
	"time"

	"github.com/gosdp/gosdp/bench/internal/harness"
)

// A Round is one turn of each contender, in order.
type Round struct {
	Samples []Sample
	// Foreign is the share of all processors' time, from 0 to 1, that other programs
	// used.
	Foreign float64
}

// A Sample is the result of one turn.
type Sample struct {
	Metrics []harness.Metric
	// LineBefore and LineAfter are round trips of the cache line before and after
	// the turn, or zero if they are not known.
	LineBefore, LineAfter time.Duration
}

// Distance says how far apart the two processors are.
type Distance string

const (
	All  Distance = "all" // of any distance
	Near Distance = "near"
	Far  Distance = "far"
)

// FarLine is the round trip of a cache line from which processors count as far
// apart. It takes 0.05 to 0.15 µs through a cache that both share, otherwise 0.3
// to 1 µs.
const FarLine = 250 * time.Nanosecond

// DistanceOf returns the distance that corresponds to a round trip.
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

// distance returns the distance during the turn, or All if it changed.
func (s Sample) distance() Distance {
	if before := DistanceOf(s.LineBefore); before == DistanceOf(s.LineAfter) {
		return before
	}
	return All
}

// value returns the metric with the given name.
func (s Sample) value(name string) (float64, bool) {
	for _, m := range s.Metrics {
		if m.Name == name {
			return m.Value, true
		}
	}
	return 0, false
}

// ForeignLimit is the share of the processors' time above which a round counts as
// disturbed. The kernel's 10 ms ticks alone can change the result for a short
// round by a few hundredths.
const ForeignLimit = 0.10

// Disturbed reports whether other programs used more than ForeignLimit.
func (r Round) Disturbed() bool { return r.Foreign > ForeignLimit }

// Kept says how many rounds of a case were kept or dropped.
type Kept struct {
	Rounds    int     `json:"rounds"`    // that were kept
	Disturbed int     `json:"disturbed"` // of those; they were kept because there were too few others
	Dropped   int     `json:"dropped"`   // because they were disturbed
	Foreign   float64 `json:"foreign"`   // the median over the kept rounds
}

// Keep returns the want least disturbed rounds, in their original order. It keeps all
// undisturbed rounds, even if there are more.
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
