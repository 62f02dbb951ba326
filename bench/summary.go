package main

import (
	"slices"

	"github.com/gosdp/gosdp/bench/internal/harness"
)

// A row is what all rounds together say about one contender under one load.
type row struct {
	load      harness.Case
	contender string
	metric    spread
	ratio     float64 // to the baseline, the median of the rounds' ratios
	cost      float64 // processor time, the median
	allocs    float64 // a message, the median
}

// A spread is how the rounds' values lie.
type spread struct{ p10, median, p90 float64 }

// summarize makes the rows of one case. The first series is the baseline's.
// Ratios are taken round by round, because what slows the machine in one round
// slows both sides of that round's ratio.
func summarize(load harness.Case, all []series) []row {
	var rows []row
	baseline := values(all[0], load)
	for _, s := range all {
		mine := values(s, load)
		var ratios, costs, allocs []float64
		for i, sample := range s.samples {
			ratios = append(ratios, mine[i]/baseline[i])
			costs = append(costs, load.Metric.Cost(sample.messages, load.Size, sample.cpu))
			allocs = append(allocs, float64(sample.mallocs)/float64(sample.messages))
		}
		rows = append(rows, row{
			load:      load,
			contender: s.contender,
			metric:    spread{quantile(mine, 0.1), quantile(mine, 0.5), quantile(mine, 0.9)},
			ratio:     quantile(ratios, 0.5),
			cost:      quantile(costs, 0.5),
			allocs:    quantile(allocs, 0.5),
		})
	}
	return rows
}

// values are the case's metric in each round.
func values(s series, load harness.Case) []float64 {
	var v []float64
	for _, sample := range s.samples {
		v = append(v, load.Metric.Of(sample.messages, load.Size, sample.took))
	}
	return v
}

// quantile interpolates between the two values that lie around q.
func quantile(values []float64, q float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	place := q * float64(len(sorted)-1)
	below := int(place)
	above := min(below+1, len(sorted)-1)
	return sorted[below] + (place-float64(below))*(sorted[above]-sorted[below])
}
