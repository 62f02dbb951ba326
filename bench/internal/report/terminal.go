package report

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/gosdp/gosdp/bench/internal/harness"
)

// headline is the main metric of each kind of case, which is the one that the
// terminal shows.
var headline = map[harness.Kind]string{
	harness.RTT:        harness.P50,
	harness.RTTIdle:    harness.P50,
	harness.Cost100:    harness.CPUPerMReq,
	harness.Cost200:    harness.CPUPerMReq,
	harness.Cost400:    harness.CPUPerMReq,
	harness.Cost1000:   harness.CPUPerMReq,
	harness.Stream:     harness.BytesPerS,
	harness.StreamBuf:  harness.BytesPerS,
	harness.Duplex:     harness.BytesPerS,
	harness.Conns:      harness.RSS,
	harness.ConnsBusy:  harness.ReqPerS,
	harness.ConnsHome:  harness.RSS,
	harness.ConnsRead:  harness.CPUPerS,
	harness.Setup:      harness.P50,
	harness.SetupFirst: harness.P50,
	harness.Burst:      harness.P50,
	harness.Life:       harness.P50,
	harness.LifeAgain:  harness.P50,
	harness.HTTP:       harness.ReqPerS,
	harness.GRPC:       harness.P50,
	harness.GRPCInside: harness.P50,
	harness.GRPCStream: harness.MsgsPerS,
}

// WriteTables prints the main metric of each case, and the targets.
func (r *Report) WriteTables(out io.Writer, targets []Target) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "case\tcontender\tdistance\tmetric\tmedian\tlo\thi\tunit\tto tcp\tto unix\tto limit\t")
	for _, row := range r.Rows {
		if row.Metric != headline[row.Case] && row.Case != LineCase {
			continue
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t\n",
			row.Load().Name(), row.Contender, row.Distance, row.Metric,
			number(row.Median), number(row.Lo), number(row.Hi), row.Unit, ratio(row.Ratio), ratio(row.Unix), ratio(row.Limit))
	}
	fmt.Fprintln(w)
	if outcomes := r.Judge(targets); len(outcomes) > 0 {
		fmt.Fprintln(w, "target\tcontender\tdistance\tmetric\tmust\tmeasured\t\t")
		for _, o := range outcomes {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s %s\t%s\t%s\t\n",
				o.Load.Name(), o.Contender, o.Distance, o.Metric, o.Direction(), o.Must, o.Value(), o.Verdict())
		}
		fmt.Fprintln(w)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, a := range r.Absent {
		fmt.Fprintf(out, "%s was not measured: %s\n", a.Contender, a.Why)
	}
	for _, f := range r.Failed {
		fmt.Fprintf(out, "%s failed in %s: %s\n", f.Contender, f.Case, f.Why)
	}
	return nil
}
