package report

import (
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/gosdp/gosdp/bench/internal/harness"
)

// A Row summarizes all rounds of one contender in one case, for one metric and one
// distance.
type Row struct {
	Case      harness.Kind `json:"case"`
	Contender string       `json:"contender"`
	Size      int          `json:"size"`
	Conns     int          `json:"conns"`
	Exchanges int          `json:"exchanges,omitempty"`
	Distance  Distance     `json:"distance"`
	Metric    string       `json:"metric"`
	Unit      string       `json:"unit"`
	Median    float64      `json:"median"`
	Lo        float64      `json:"lo"` // the 10th percentile of the rounds
	Hi        float64      `json:"hi"` // the 90th
	// Ratio is the median of the rounds' ratios to the baseline, or nil if there is
	// none.
	Ratio  *float64  `json:"ratio_tcp"`
	Unix   *float64  `json:"ratio_unix"`            // the same for a Unix socket
	Limit  *float64  `json:"ratio_limit,omitempty"` // the same for what is possible at all
	Values []float64 `json:"values"`                // of the rounds
	Ratios []float64 `json:"ratios"`                // of the rounds, to the baseline
}

// Load returns the row's case.
func (r Row) Load() harness.Case {
	return harness.Case{Kind: r.Case, Size: r.Size, Conns: r.Conns, Exchanges: r.Exchanges}
}

// minRounds is the least number of rounds of a distance for a row of its own.
// Fewer do not show a spread.
const minRounds = 5

// Summarize makes a case's rows from its rounds. contenders are the names of the
// samples in each round. Ratios refer to the sample of the baseline in the same
// round, because whatever slows the machine in a round slows both down.
func Summarize(load harness.Case, contenders []string, rounds []Round) (rows []Row) {
	baseline := slices.Index(contenders, harness.Baseline)
	unix, limit := slices.Index(contenders, harness.UnixSocket), slices.Index(contenders, harness.Limit)
	for i, contender := range contenders {
		for _, metric := range metricsOf(rounds, i) {
			distances := map[Distance]Row{}
			for _, distance := range []Distance{All, Near, Far} {
				row := Row{
					Case: load.Kind, Size: load.Size, Conns: load.Conns, Exchanges: load.Exchanges,
					Contender: contender, Distance: distance,
					Metric: metric.Name, Unit: metric.Unit,
				}
				row.collect(rounds, i, baseline, unix, limit)
				distances[distance] = row
			}
			rows = append(rows, distances[All])
			near, far := distances[Near], distances[Far]
			// The distance does not affect what idle connections hold.
			both := len(near.Values) >= minRounds && len(far.Values) >= minRounds
			if both && !slices.Contains(idleKinds, load.Kind) {
				rows = append(rows, near, far)
			}
		}
	}
	return rows
}

// metricsOf returns the metrics of one contender that every round has.
func metricsOf(rounds []Round, contender int) (all []harness.Metric) {
	for _, m := range rounds[0].Samples[contender].Metrics {
		everywhere := true
		for _, r := range rounds {
			_, ok := r.Samples[contender].value(m.Name)
			everywhere = everywhere && ok
		}
		if everywhere {
			all = append(all, m)
		}
	}
	return all
}

// idleKinds are those of connections that carry nothing.
var idleKinds = []harness.Kind{harness.Conns, harness.ConnsHome, harness.ConnsRead}

// collect fills the row with the rounds at its distance. A ratio requires that
// the contender to which it refers was at that distance too.
func (r *Row) collect(rounds []Round, contender, baseline, unix, limit int) {
	at := func(s Sample) bool { return r.Distance == All || s.distance() == r.Distance }
	var toUnix, toLimit []float64
	for _, round := range rounds {
		sample := round.Samples[contender]
		if !at(sample) {
			continue
		}
		value, _ := sample.value(r.Metric)
		r.Values = append(r.Values, value)
		appendRatio := func(ratios *[]float64, to int) {
			if to < 0 || !at(round.Samples[to]) {
				return
			}
			if of, ok := round.Samples[to].value(r.Metric); ok && of != 0 {
				*ratios = append(*ratios, value/of)
			}
		}
		appendRatio(&r.Ratios, baseline)
		appendRatio(&toUnix, unix)
		appendRatio(&toLimit, limit)
	}
	r.Unix, r.Limit = median(toUnix), median(toLimit)
	r.finish()
}

// finish computes the quantiles from the rounds.
func (r *Row) finish() {
	if len(r.Values) == 0 {
		return
	}
	r.Lo, r.Median, r.Hi = quantile(r.Values, 0.1), quantile(r.Values, 0.5), quantile(r.Values, 0.9)
	r.Ratio = median(r.Ratios)
}

// median returns nil if there are no values.
func median(values []float64) *float64 {
	if len(values) == 0 {
		return nil
	}
	m := quantile(values, 0.5)
	return &m
}

// LineCase and LineContender are the case and the contender of the rows for the
// cache line's round trip.
const (
	LineCase      = harness.Kind("line")
	LineContender = "processors"
)

// LineRows summarizes the round trips of the cache line.
func LineRows(lines []time.Duration) (rows []Row) {
	byDistance := map[Distance][]float64{}
	for _, line := range lines {
		if line == 0 {
			continue
		}
		µs := line.Seconds() * 1e6
		for _, distance := range []Distance{All, DistanceOf(line)} {
			byDistance[distance] = append(byDistance[distance], µs)
		}
	}
	for _, distance := range []Distance{All, Near, Far} {
		if values := byDistance[distance]; len(values) >= minRounds {
			row := Row{
				Case: LineCase, Contender: LineContender, Distance: distance,
				Metric: harness.P50, Unit: "µs", Values: values,
			}
			row.finish()
			rows = append(rows, row)
		}
	}
	return rows
}

// quantile interpolates linearly between the two values next to q.
func quantile(values []float64, q float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	place := q * float64(len(sorted)-1)
	below := int(place)
	above := min(below+1, len(sorted)-1)
	return sorted[below] + (place-float64(below))*(sorted[above]-sorted[below])
}

// number formats a value with three significant digits.
func number(v float64) string {
	switch a := math.Abs(v); {
	case a == 0:
		return "0"
	case a >= 1e9:
		return number(v/1e9) + "G"
	case a >= 1e6:
		return number(v/1e6) + "M"
	case a >= 1e4:
		return number(v/1e3) + "k"
	case a >= 100:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case a >= 0.001:
		return strconv.FormatFloat(v, 'g', 3, 64)
	default:
		return strconv.FormatFloat(v, 'e', 1, 64)
	}
}
