// Bench compares SDP with the transports that a program might use instead, on
// the machine that it runs on. For each contender, two processes on this host run
// each load in turns:
//
//	go run ./bench
//
// With -check it says which targets of targets.txt are met, and exits with status 1 if one
// is not. A run takes more than 10 minutes. It prints a table and writes a report with charts
// and raw numbers to bench/report/. docs/performance.md explains the method.
package main

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/gosdp/gosdp/bench/internal/harness"
)

func main() {
	if harness.ChildMain() {
		return
	}
	var o options
	flag.BoolVar(&o.quick, "quick", false, "finish in about a minute: fewer sizes, shorter turns")
	flag.BoolVar(&o.check, "check", false, "measure only what has a target in targets.txt, and exit with status 1 if one is not met")
	run := flag.String("run", "", "measure only the cases whose name matches this `regexp`, such as ^rtt/64B$")
	flag.BoolVar(&o.json, "json", false, "print rows as JSON, one object per line, instead of a table")
	flag.StringVar(&o.baseline, "baseline", "", "compare with an earlier run's JSON in this `file`")
	contenders := flag.String("contenders", "", "measure only the contenders in this `list`, such as tcp,sdp-iwarp; a name may be repeated")
	flag.StringVar(&o.dir, "report", defaultDir(), "write the report to this `directory`")
	flag.StringVar(&o.profiles, "profile", "", "write CPU profiles of all processes to this `directory`")
	flag.Parse()

	err := func() (err error) {
		if flag.NArg() > 0 {
			return fmt.Errorf("unknown argument %q", flag.Arg(0))
		}
		if o.run, err = regexp.Compile(*run); err != nil {
			return err
		}
		if *contenders != "" {
			o.contenders = strings.Split(*contenders, ",")
		}
		return o.main(os.Stdout, os.Stderr)
	}()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// defaultDir returns bench/report, relative to the root of the repository or to bench/.
func defaultDir() string {
	if _, err := os.Stat("bench/targets.txt"); err == nil {
		return "bench/report"
	}
	return "report"
}

// There are enough rounds for stable medians and 10th and 90th percentiles. Many
// short rounds are better than few long ones: where the kernel places two
// processes that talk, on one processor or on two, may stay the same for a whole
// turn. Several passes also show how the machine changes over minutes.
const (
	fullPasses  = 3
	fullRounds  = 5
	quickPasses = 1
	quickRounds = 9
)

// Time limits for all turns together. Setup and reporting come on top. They are
// variables so that tests can shorten them.
var (
	fullTime  = 4 * time.Minute
	quickTime = 34 * time.Second
)
