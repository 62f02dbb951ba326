package main

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/gosdp/gosdp/bench/internal/harness"
)

// printRows prints the measurements.
func printRows(out io.Writer, rows []row) error {
	w := newTable(out)
	fmt.Fprintln(w, "case\tcontender\tmedian\tp10\tp90\tunit\tto "+harness.Baseline+"\tCPU of both\tallocs/msg\t")
	for _, r := range rows {
		m := r.load.Metric
		fmt.Fprintf(w, "%s\t%s\t%.4g\t%.4g\t%.4g\t%s\t%.2f\t%.3g %s\t%.2f\t\n",
			r.load.Name(), r.contender, r.metric.median, r.metric.p10, r.metric.p90, m.Unit(),
			r.ratio, r.cost, m.CostUnit(), r.allocs)
	}
	return w.Flush()
}

// printTargets prints which targets the rows meet; those of cases that were not
// measured are left out.
func printTargets(out io.Writer, rows []row) error {
	fmt.Fprintln(out)
	w := newTable(out)
	fmt.Fprintln(w, "target\tcontender\tto "+harness.Baseline+"\tmeasured\t\t")
	for _, t := range targets {
		for _, r := range rows {
			if r.load.Name() == t.load && r.contender == t.contender {
				fmt.Fprintf(w, "%s\t%s\t%s %.2f\t%.2f\t%s\t\n",
					t.load, t.contender, t.direction(), t.ratio, r.ratio, t.outcome(r.ratio))
			}
		}
	}
	return w.Flush()
}

func newTable(out io.Writer) *tabwriter.Writer {
	return tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
}
