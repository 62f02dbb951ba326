// Repeat runs the library's tests many times, on each device, to find rare failures.
//
//	go run ./test/repeat -times 100 -race -dir /tmp/repeat
//
// It compiles every package once and runs its tests as often as requested, several programs
// at a time. If the device matters, it runs them with each device first in SDP_DEVICES. Tests
// that kill processes, measure thousands of connections or take minutes have fewer runs. They
// run one at a time, after all others.
//
// The directory keeps the output of each failure (failures/) and a line for each run
// (runs.jsonl). After an interruption, the same command continues. Runs of programs that have
// changed since do not count. At the end Repeat prints a table, and the same as one line of
// JSON. The exit status is 1 if a run failed.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

func main() {
	r := repeat{root: ".", subjects: all, out: os.Stdout}
	flag.IntVar(&r.times, "times", 100, "number of runs")
	flag.IntVar(&r.few, "few", 5, "number of runs of tests that kill processes or measure scale")
	flag.BoolVar(&r.race, "race", false, "use the race detector")
	flag.BoolVar(&r.short, "short", false, "run the tests with -short")
	flag.IntVar(&r.beside, "beside", runtime.NumCPU(), "number of programs to run at a time")
	flag.DurationVar(&r.timeout, "timeout", 10*time.Minute, "time limit for one run")
	flag.DurationVar(&r.soak, "soak", 2*time.Minute, "duration of a soak")
	flag.StringVar(&r.dir, "dir", filepath.Join(os.TempDir(), "gosdp-repeat"), "`directory` for programs and results")
	devices := flag.String("devices", "iwarp,shm", "`list` of devices")
	only := flag.String("only", "", "run only packages that match this `regexp`")
	flag.Parse()
	// Lists in the Makefile are separated by spaces.
	r.devices = strings.FieldsFunc(*devices, func(c rune) bool { return c == ',' || c == ' ' })
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := r.run(ctx, *only); err != nil {
		fmt.Fprintln(os.Stderr, "repeat:", err)
		stop()
		os.Exit(1)
	}
}
