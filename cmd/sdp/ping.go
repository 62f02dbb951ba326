package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/gosdp/gosdp/internal/perf"
	"github.com/gosdp/gosdp/internal/term"
)

func pingCommand() *command {
	c := &command{
		name:  "ping",
		usage: "[flags] host[:port]",
		short: "measure round trips to a peer, over SDP and over TCP",
		long:  pingHelp,
	}
	return withFlags(c, func(f *pingFlags, rest []string) error {
		switch {
		case len(rest) != 1:
			return misuse(c.name, "want the address of a machine where sdp perf -s runs")
		case f.count < 1 || f.count > 1<<20:
			return misuse(c.name, "-n %d: want 1 to %d", f.count, 1<<20)
		case f.interval < 0:
			return misuse(c.name, "-interval %v: must not be negative", f.interval)
		case f.interval > maxPing/time.Duration(f.count):
			return misuse(c.name, "-interval %v: %d of them take more than %v", f.interval, f.count, maxPing)
		case f.size < 1 || f.size > perf.MaxSize:
			return misuse(c.name, "-size %d: want 1 to %d bytes", f.size, perf.MaxSize)
		}
		if err := validWays(c.name, f.ways); err != nil {
			return err
		}
		address := withPort(rest[0])
		if err := validAddress(address); err != nil {
			return misuse(c.name, "%v", err)
		}
		return f.run(address)
	})
}

const pingHelp = `
Ping sends messages to a peer that runs "sdp perf -s" and measures how long each takes to come
back: over each device of SDP that both ends have, and over TCP. It prints a table with the
fastest round trip, the mean, the times within which 50 and 99 of 100 came back, and the
slowest.

With -interval there is a pause after each round trip, as programs have that are not always
busy. Without one, both ends keep looking for the next message, and SDP does not sleep.`

// maxPing bounds the pauses of one way together. The server ends a measurement after perf.MaxTime.
const maxPing = 365 * 24 * time.Hour

// answerTime is how long a round trip may take, and how long connecting may take.
const answerTime = 30 * time.Second

// afterFunc is time.AfterFunc. Tests replace it.
var afterFunc = time.AfterFunc

type pingFlags struct {
	count    int
	size     int
	interval time.Duration
	ways     string
	json     bool
	verbose  bool
}

func (f *pingFlags) define(fs *flag.FlagSet) {
	fs.IntVar(&f.count, "n", 1000, "make this `number` of round trips each way")
	sizeVar(fs, &f.size, "size", 64, "`bytes` of a message")
	fs.DurationVar(&f.interval, "interval", 0, "the `time` between two round trips; 0: none")
	fs.StringVar(&f.ways, "ways", strings.Join(perf.Ways(), ","), "measure these `ways`, separated by commas")
	fs.BoolVar(&f.json, "json", false, "print JSON")
	fs.BoolVar(&f.verbose, "v", false, "print each round trip")
}

func (f *pingFlags) run(address string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	progress := term.NewProgress(os.Stderr)
	results := []result{}
	for _, way := range strings.Split(f.ways, ",") {
		if ctx.Err() != nil { // interrupted
			break
		}
		limited, cancel := context.WithCancelCause(ctx)
		silent := afterFunc(answerTime, func() { cancel(errSilent) })
		progress.Show("%s: connecting", way)
		last, heard := time.Now(), time.Now()
		l, err := perf.RoundTrips(limited, way, address, f.size, f.count, 0, f.interval, func(n int, took time.Duration) {
			if f.interval > 0 || time.Since(heard) > time.Second/10 { // not each time: it takes longer than a round trip may
				heard = time.Now()
				silent.Reset(answerTime + f.interval)
			}
			switch {
			case f.verbose && !f.json:
				fmt.Fprintf(stdout, "%d bytes over %s: %d in %s\n", f.size, way, n, term.Duration(took))
			case time.Since(last) > 100*time.Millisecond:
				last = time.Now()
				progress.Show("%s: %d of %d, the last in %s", way, n, f.count, term.Duration(took))
			}
		})
		if cause := context.Cause(limited); cause != nil && ctx.Err() == nil {
			err = cause // RoundTrips takes it for the user's wish, or says that the time is over
		}
		silent.Stop()
		cancel(nil)
		progress.Clear()
		if err != nil && ctx.Err() != nil { // interrupted before anything was measured
			break
		}
		r := result{Way: way}
		if l.Count > 0 {
			r.Latency = &l
		}
		if err != nil {
			r.Error = err.Error()
		}
		results = append(results, r)
	}
	if f.json {
		printJSON(results)
		return verdict(ctx, results)
	}
	t := term.NewTable("WAY", ">ROUND TRIPS", ">MIN", ">MEAN", ">P50", ">P99", ">MAX")
	for _, r := range results {
		if l := r.Latency; l != nil {
			t.Row(r.Way, fmt.Sprint(l.Count), term.Duration(l.Min), term.Duration(l.Mean),
				term.Duration(l.P50), term.Duration(l.P99), term.Duration(l.Max))
		} else {
			t.Row(r.Way, "-", "-", "-", "-", "-", "-")
		}
	}
	fmt.Fprint(stdout, t)
	printReasons(results)
	return verdict(ctx, results)
}

// errSilent is why a measurement ends early if a round trip takes longer than answerTime.
var errSilent = errors.New("peer stopped answering")
