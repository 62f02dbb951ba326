package report

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/gosdp/gosdp/bench/internal/harness"
)

// gains are what a program is likely to do with connections between two programs of one host.
var gains = []struct {
	what   string
	load   string // the name of the case
	metric string
	rate   bool // more is better
}{
	{"round trip of 64 bytes", "rtt/64B", harness.P50, false},
	{"stream of 64 KB Writes", "stream/64KB", harness.BytesPerS, true},
	{"HTTP requests on 16 connections", "http/1KB/16", harness.ReqPerS, true},
	{"gRPC call", "grpc/1KB", harness.P50, false},
	{"opening a connection, with one exchange", "setup/1B", harness.P50, false},
}

// gaining is the contender that is a program with sdp.Dial and sdp.Listen in place of net's.
const gaining = "sdp-shm"

// WriteSummary prints in a line each what a program gains that uses package sdp in place of net, as far as it was
// measured.
func (r *Report) WriteSummary(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, g := range gains {
		for _, row := range r.Rows {
			if row.Load().Name() != g.load || row.Metric != g.metric || row.Contender != gaining || row.Distance != All || row.Ratio == nil {
				continue
			}
			base, ok := r.Find(row.Load(), harness.Baseline, All, g.metric)
			if !ok {
				continue
			}
			times := *row.Ratio
			if !g.rate {
				times = 1 / times
			}
			fmt.Fprintf(w, "%s\tnet %s %s\tsdp %s %s\t%.1f times as fast\t\n", g.what, number(base.Median), base.Unit, number(row.Median), row.Unit, times)
		}
	}
	return w.Flush()
}
