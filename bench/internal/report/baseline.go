package report

import (
	"fmt"
	"io"
	"math"
	"text/tabwriter"

	"github.com/gosdp/gosdp/bench/internal/harness"
	"golang.org/x/perf/benchmath"
)

// A Change is a row that two reports have.
type Change struct {
	Old, New Row
	// P is the probability that the rounds of both came from the same
	// distribution, by a Mann-Whitney U-test.
	P float64
	// OfRatios says that the ratios to the baseline were compared, and not the
	// values, because both reports have them.
	OfRatios bool
}

// SignificantP is the P below which a change counts as one.
const SignificantP = 0.01

// Significant tells whether it does.
func (c Change) Significant() bool { return c.P < SignificantP }

// Factor is by how much the median has changed: 1 is not at all.
func (c Change) Factor() float64 {
	if c.OfRatios {
		return *c.New.Ratio / *c.Old.Ratio
	}
	return c.New.Median / c.Old.Median
}

// Within is how many of the two medians lie between the other's 10th and 90th
// percentile.
func (c Change) Within() (n int) {
	for _, of := range [2]struct{ median, other Row }{{c.Old, c.New}, {c.New, c.Old}} {
		if of.other.Lo <= of.median.Median && of.median.Median <= of.other.Hi {
			n++
		}
	}
	return n
}

// Compare finds the rows that both reports have, in the order of the new one.
// Ratios are compared where there are any, because the machine's own speed drops
// out of them.
func Compare(old, new *Report) (changes []Change) {
	for _, row := range new.Rows {
		before, ok := old.Find(row.Load(), row.Contender, row.Distance, row.Metric)
		if !ok || len(before.Values) == 0 {
			continue
		}
		c := Change{Old: before, New: row}
		oldValues, newValues := before.Values, row.Values
		if row.Contender != harness.Baseline && row.Ratio != nil && before.Ratio != nil {
			c.OfRatios = true
			oldValues, newValues = before.Ratios, row.Ratios
		}
		c.P = benchmath.AssumeNothing.Compare(sample(oldValues), sample(newValues)).P
		changes = append(changes, c)
	}
	return changes
}

// sample is values as benchmath takes them, which sorts what it is given.
func sample(values []float64) *benchmath.Sample {
	return benchmath.NewSample(append([]float64(nil), values...), &benchmath.DefaultThresholds)
}

// WriteChanges prints the changes that are significant, how many rows were
// compared, since of a thousand rows that did not change ten would seem to have,
// and in how many the medians agree.
func WriteChanges(out io.Writer, changes []Change) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "case\tcontender\tdistance\tmetric\told\tnew\tunit\tto tcp, old\tnew\tfactor\tp\t")
	significant, within, both := 0, 0, 0
	for _, c := range changes {
		within += c.Within()
		both += c.Within() / 2
		if !c.Significant() {
			continue
		}
		significant++
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%.3g\t%.2g\t\n",
			c.New.Load().Name(), c.New.Contender, c.New.Distance, c.New.Metric,
			number(c.Old.Median), number(c.New.Median), c.New.Unit,
			ratio(c.Old), ratio(c.New), c.Factor(), c.P)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(out, "\n%d of %d rows have changed (p < %g; by chance about %.0f would seem to).\n"+
		"%d of their %d medians lie between the other's lo and hi; in %d rows both do.\n",
		significant, len(changes), SignificantP, math.Ceil(SignificantP*float64(len(changes))),
		within, 2*len(changes), both)
	return err
}

// ratio prints a row's ratio to the baseline.
func ratio(r Row) string {
	if r.Ratio == nil {
		return "–"
	}
	return number(*r.Ratio)
}
