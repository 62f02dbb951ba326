// Repeat runs the tests of the library again and again, on one device and the
// other, until what fails once in a hundred times has failed.
//
//	go run ./test/repeat -times 100 -race -dir /tmp/repeat
//
// Every package is compiled once, and its tests run as often as they are told,
// some programs beside each other. Where the device makes a difference they run
// with SDP_DEVICES naming each first. What kills processes, or measures thousands of
// connections, or takes minutes by nature, has fewer runs, one after the other,
// behind the rest.
//
// The directory keeps what each failure has printed (failures/), and a line for
// each run (runs.jsonl), so that who interrupts Repeat goes on later with the same
// command. Runs of programs that were compiled from something else do not count.
// At the end there is a table, and the same as one line of JSON. Repeat exits with
// 1 if a run has failed.
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
	flag.IntVar(&r.times, "times", 100, "how often")
	flag.IntVar(&r.few, "few", 5, "how often what kills, and what is about scale")
	flag.BoolVar(&r.race, "race", false, "with the race detector")
	flag.BoolVar(&r.short, "short", false, "tell the tests that there is little time")
	flag.IntVar(&r.beside, "beside", runtime.NumCPU(), "programs beside each other")
	flag.DurationVar(&r.timeout, "timeout", 10*time.Minute, "for one program")
	flag.DurationVar(&r.soak, "soak", 2*time.Minute, "how long a soak takes")
	flag.StringVar(&r.dir, "dir", filepath.Join(os.TempDir(), "gosdp-repeat"), "where everything is kept")
	devices := flag.String("devices", "iwarp,shm", "the devices")
	only := flag.String("only", "", "only the packages that match this `regexp`")
	flag.Parse()
	// make's lists have spaces
	r.devices = strings.FieldsFunc(*devices, func(c rune) bool { return c == ',' || c == ' ' })
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := r.run(ctx, *only); err != nil {
		fmt.Fprintln(os.Stderr, "repeat:", err)
		stop()
		os.Exit(1)
	}
}
