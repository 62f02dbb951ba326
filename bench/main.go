// Bench measures what SDP gains over TCP on the machine at hand. Two processes
// on one host carry each load over each contender, in rounds:
//
//	go run ./bench [-run REGEXP] [-rounds N] [-time D]
//
// It prints a table of the cases and one of the targets. The same cases are Go
// benchmarks, which also count allocations: go test -bench . ./bench
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"regexp"
	"time"

	"github.com/gosdp/gosdp/bench/internal/harness"
)

func main() {
	if harness.PeerMain() {
		return
	}
	run := flag.String("run", "", "measure only the cases whose name matches this `regexp`")
	var plan plan
	flag.IntVar(&plan.rounds, "rounds", 9, "how often each contender's turn comes")
	flag.DurationVar(&plan.turn, "time", 300*time.Millisecond, "how long a turn lasts")
	flag.Parse()

	only, err := regexp.Compile(*run)
	if err == nil {
		err = report(os.Stdout, os.Stderr, plan, only)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// report measures the cases whose names match and prints the tables.
func report(out, progress io.Writer, plan plan, only *regexp.Regexp) error {
	peer, err := harness.StartPeer()
	if err != nil {
		return err
	}
	defer peer.Close()
	var rows []row
	for _, c := range harness.Cases {
		if !only.MatchString(c.Name()) {
			continue
		}
		fmt.Fprintln(progress, c.Name())
		measured, err := plan.measure(context.Background(), peer, c, harness.Contenders)
		if err != nil {
			return fmt.Errorf("%s: %w", c.Name(), err)
		}
		rows = append(rows, summarize(c, measured)...)
	}
	if len(rows) == 0 {
		return fmt.Errorf("no case matches %q", only)
	}
	if err := printRows(out, rows); err != nil {
		return err
	}
	return printTargets(out, rows)
}
