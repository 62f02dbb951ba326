package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/gosdp/gosdp/internal/perf"
	"github.com/gosdp/gosdp/internal/term"
	"github.com/gosdp/gosdp/sdp"
)

// perfPort is the port of "sdp perf -s", and the default port of clients.
const perfPort = "7575"

// perfListen is where "sdp perf -s" listens if it is not told.
const perfListen = ":" + perfPort

func perfCommand() *command {
	c := &command{
		name:  "perf",
		usage: "-s   or   sdp perf [flags] host[:port]",
		short: "measure round trips and throughput to a peer, over SDP and over TCP",
		long:  perfHelp,
	}
	return withFlags(c, func(f *perfFlags, rest []string) error {
		if f.serve {
			if len(rest) > 0 || f.json {
				return misuse(c.name, "-s takes no address and prints no JSON; -listen says where")
			}
			return servePerf(f.listen)
		}
		if err := f.valid(c.name, rest); err != nil {
			return err
		}
		return f.run(withPort(rest[0]))
	})
}

const perfHelp = `
Perf measures what a connection to another machine, or to another program of this one, is
worth: round trips of small messages, and throughput each way. It does so over each device of
SDP that both ends have and over TCP, and prints a table:

	machine-a$ sdp perf -s
	machine-b$ sdp perf machine-a

The columns are the time of a round trip (half of them are faster than P50, and 99 of 100
faster than P99), and bytes a second from here to the peer (UP) and back (DOWN). VS TCP is how
many times as fast as TCP that is. A device that does not work is listed with its reason.

The server sends to anyone who connects, as fast as it can, and has no authentication. Run it
only while you measure.

Two programs on one machine share its processors. To measure shared memory there, nothing
else should run.`

type perfFlags struct {
	serve  bool
	listen string
	ways   string
	size   int
	block  int
	time   time.Duration
	json   bool
}

func (f *perfFlags) define(fs *flag.FlagSet) {
	fs.BoolVar(&f.serve, "s", false, "serve other machines' measurements")
	fs.StringVar(&f.listen, "listen", perfListen, "with -s: listen at this `address`")
	fs.StringVar(&f.ways, "ways", strings.Join(perf.Ways(), ","), "measure these `ways`, separated by commas")
	sizeVar(fs, &f.size, "size", 64, "`bytes` of a round trip's message")
	sizeVar(fs, &f.block, "block", 1<<20, "`bytes` of a Write and of a Read for throughput")
	fs.DurationVar(&f.time, "time", time.Second, "the `time` that each measurement takes, at most 1m, of three for each way")
	fs.BoolVar(&f.json, "json", false, "print JSON")
}

func (f *perfFlags) valid(name string, rest []string) error {
	switch {
	case len(rest) != 1:
		return misuse(name, "want the address of a machine where sdp perf -s runs")
	case f.listen != perfListen:
		return misuse(name, "-listen is for -s")
	case f.size < 1 || f.size > perf.MaxSize:
		return misuse(name, "-size %d: want 1 to %d bytes", f.size, perf.MaxSize)
	case f.block < 1 || f.block > perf.MaxSize:
		return misuse(name, "-block %d: want 1 to %d bytes", f.block, perf.MaxSize)
	case f.time <= 0 || f.time > time.Minute:
		return misuse(name, "-time %v: must be positive and at most 1m", f.time)
	}
	if err := validAddress(withPort(rest[0])); err != nil {
		return misuse(name, "%v", err)
	}
	return validWays(name, f.ways)
}

func validWays(name, ways string) error {
	for _, way := range strings.Split(ways, ",") {
		if !slices.Contains(perf.Ways(), way) {
			return misuse(name, "%q is none of %s", way, strings.Join(perf.Ways(), ", "))
		}
	}
	return nil
}

// withPort adds the default port to an address without one.
func withPort(address string) string {
	if _, _, err := net.SplitHostPort(address); err == nil {
		return address
	}
	return net.JoinHostPort(strings.Trim(address, "[]"), perfPort)
}

func servePerf(address string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ln, err := perf.Listen(ctx, address)
	if err != nil {
		return err
	}
	context.AfterFunc(ctx, func() { ln.Close() })
	fmt.Fprintf(stdout, "waiting for clients at %s\n", ln.Addr())
	kinds := map[byte]string{perf.Echo: "round trips", perf.Upload: "received", perf.Download: "sent"}
	return perf.Serve(ln, func(c net.Conn, kind byte, bytes int64, err error) {
		way := perf.TCP
		if up, ok := c.(*sdp.Conn); ok {
			s := up.Stats()
			if way = s.Device; s.Moves > 0 {
				way = "shm" // it has come home to be closed
			}
		}
		if err != nil {
			fmt.Fprintf(stdout, "%s over %s: %s\n", c.RemoteAddr(), way, term.Clean(err.Error()))
			return
		}
		fmt.Fprintf(stdout, "%s over %s: %s, %s\n", c.RemoteAddr(), way, kinds[kind], term.Bytes(float64(bytes)))
	})
}

// A result is a measurement over one device, or over TCP.
type result struct {
	Way     string        `json:"way"`
	Error   string        `json:"error,omitempty"`
	Latency *perf.Latency `json:"latency,omitempty"`
	Up      float64       `json:"up_bytes_per_second,omitempty"`
	Down    float64       `json:"down_bytes_per_second,omitempty"`
}

func (f *perfFlags) run(address string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	progress := term.NewProgress(os.Stderr)
	results := []result{}
	for _, way := range strings.Split(f.ways, ",") {
		r := f.measure(ctx, way, address, progress)
		progress.Clear()
		if ctx.Err() != nil {
			break
		}
		results = append(results, r)
	}
	if f.json {
		printJSON(results)
	} else {
		fmt.Fprint(stdout, tableOfResults(results))
		printReasons(results)
	}
	return verdict(ctx, results)
}

// verdict returns an error if nothing could be measured. ctx is done if the user has interrupted it.
func verdict(ctx context.Context, results []result) error {
	if slices.ContainsFunc(results, func(r result) bool { return r.Error == "" }) {
		return nil
	}
	if ctx.Err() == nil && slices.ContainsFunc(results, func(r result) bool { return r.Latency != nil }) {
		return errors.New("no measurement completed")
	}
	if ctx.Err() != nil {
		return errors.New("interrupted")
	}
	return errors.New("nothing could be measured; is sdp perf -s running there?")
}

func printReasons(results []result) {
	for _, r := range results {
		if r.Error != "" {
			not := "not"
			if r.Latency != nil {
				not = "not all of"
			}
			fmt.Fprintf(stdout, "%s %s: %s\n", not, r.Way, term.Clean(r.Error))
		}
	}
}

func (f *perfFlags) measure(ctx context.Context, way, address string, progress *term.Progress) result {
	r := result{Way: way}
	ctx, cancel := context.WithTimeout(ctx, 3*f.time+30*time.Second)
	defer cancel()
	progress.Show("%s: connecting", way)
	last := time.Now()
	l, err := perf.RoundTrips(ctx, way, address, f.size, 0, f.time, 0, func(n int, took time.Duration) {
		if time.Since(last) > 100*time.Millisecond {
			last = time.Now()
			progress.Show("%s: %d round trips of %d bytes, the last in %s", way, n, f.size, term.Duration(took))
		}
	})
	if err == nil {
		r.Latency = &l
		r.Up, err = perf.Stream(ctx, way, address, perf.Upload, f.block, f.time, func(rate float64) {
			progress.Show("%s: up %s", way, term.Rate(rate))
		})
	}
	if err == nil {
		r.Down, err = perf.Stream(ctx, way, address, perf.Download, f.block, f.time, func(rate float64) {
			progress.Show("%s: down %s", way, term.Rate(rate))
		})
	}
	if err != nil {
		r.Error = err.Error()
	}
	return r
}

func tableOfResults(results []result) *term.Table {
	t := term.NewTable("WAY", ">ROUND TRIP P50", ">P99", ">VS TCP", ">UP", ">VS TCP", ">DOWN", ">VS TCP")
	var tcp *result
	for i := range results {
		if results[i].Way == perf.TCP && results[i].Error == "" {
			tcp = &results[i]
		}
	}
	times := func(ours, theirs float64) string {
		if tcp == nil || theirs == 0 || ours == 0 {
			return "-"
		}
		return fmt.Sprintf("%.2fx", ours/theirs)
	}
	for _, r := range results {
		if r.Error != "" || r.Latency == nil {
			t.Row(r.Way, "-", "-", "-", "-", "-", "-", "-")
			continue
		}
		base := r
		if tcp != nil {
			base = *tcp
		}
		t.Row(r.Way, term.Duration(r.Latency.P50), term.Duration(r.Latency.P99),
			times(float64(base.Latency.P50), float64(r.Latency.P50)),
			term.Rate(r.Up), times(r.Up, base.Up), term.Rate(r.Down), times(r.Down, base.Down))
	}
	return t
}
