// Bench measures what SDP gains on the machine at hand, beside what would be
// used instead. Two processes on one host carry each load over each contender,
// in rounds:
//
//	go run ./bench
//
// It takes 5 to 10 minutes, prints a table, and leaves a report with pictures and
// the raw numbers in bench/report/. docs/performance.md says how it measures.
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
	flag.BoolVar(&o.quick, "quick", false, "a minute's answer: fewer sizes, shorter turns")
	run := flag.String("run", "", "measure only the cases whose name matches this `regexp`, such as ^rtt/64B$")
	flag.BoolVar(&o.json, "json", false, "print the rows as JSON, one object a line, and not as a table")
	flag.StringVar(&o.baseline, "baseline", "", "compare with the JSON of an earlier run in this `file`")
	contenders := flag.String("contenders", "", "measure only these, a `list` such as tcp,sdp-iwarp; one may be there twice")
	flag.StringVar(&o.dir, "report", defaultDir(), "leave the report in this `directory`")
	flag.StringVar(&o.profiles, "profile", "", "leave CPU profiles of all processes in this `directory`")
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

// defaultDir is bench/report, seen from the root of the project or from here.
func defaultDir() string {
	if _, err := os.Stat("bench/targets.txt"); err == nil {
		return "bench/report"
	}
	return "report"
}

// Rounds are enough that a median stands, and that its tenths do. Many short ones
// are better than few long ones, because what the kernel does with two processes
// that talk, on one processor or on two, may stay so for a whole turn. In several
// passes they show how the machine changes by the minute, too.
const (
	fullPasses  = 3
	fullRounds  = 5
	quickPasses = 1
	quickRounds = 9
)

// What all turns may take together; what is around them comes on top. Variables
// so that tests can be short.
var (
	fullTime  = 4 * time.Minute
	quickTime = 34 * time.Second
)
