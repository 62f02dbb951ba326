package report

import (
	"fmt"
	"io"
	"math"
	"text/tabwriter"

	"github.com/gosdp/gosdp/bench/internal/harness"
	"golang.org/x/perf/benchmath"
)

// A Change compares a row that two reports have in common.
type Change struct {
	Old, New Row
	// P is the probability, by a Mann-Whitney U-test, that the rounds of both came
	// from the same distribution.
	P float64
	// OfRatios says that the ratios to the baseline were compared instead of the
	// values, because both reports have them.
	OfRatios bool
}

// SignificantP is the P below which a change is significant.
const SignificantP = 0.01

// Significant reports whether the change is significant.
func (c Change) Significant() bool { return c.P < SignificantP }

// Factor returns the new median divided by the old one.
func (c Change) Factor() float64 {
	if c.OfRatios {
		return *c.New.Ratio / *c.Old.Ratio
	}
	return c.New.Median / c.Old.Median
}

// Within returns how many of the two medians lie between the other row's 10th and
// 90th percentile.
func (c Change) Within() (n int) {
	for _, of := range [2]struct{ median, other Row }{{c.Old, c.New}, {c.New, c.Old}} {
		if of.other.Lo <= of.median.Median && of.median.Median <= of.other.Hi {
			n++
		}
	}
	return n
}

// Compare finds the rows that both reports have, in the order of the new one. It
// compares ratios if there are any, because the machine's speed cancels out in
// them.
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

// sample copies values for benchmath, which sorts its input.
func sample(values []float64) *benchmath.Sample {
	return benchmath.NewSample(append([]float64(nil), values...), &benchmath.DefaultThresholds)
}

// WriteChanges prints the significant changes. It also prints how many rows were
// compared, because about 1 % of unchanged rows look significant by chance, and in
// how many of them the medians agree.
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
			ratio(c.Old.Ratio), ratio(c.New.Ratio), c.Factor(), c.P)
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

// ratio formats a row's ratio, which it may lack.
func ratio(of *float64) string {
	if of == nil {
		return "–"
	}
	return number(*of)
}
