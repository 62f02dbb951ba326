// Tour shows in ten seconds what the library gains between two processes of this machine:
//
//	go run ./examples/tour
//
// It makes round trips, HTTP requests and a transfer over TCP, in shared memory (shm) and over SDP
// on the software RNIC (iwarp). It compares every byte, and exits with
// status 1 if one differs.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/gosdp/gosdp/examples/internal/process"
	"github.com/gosdp/gosdp/rdma"
	_ "github.com/gosdp/gosdp/rdma/verbs" // RDMA hardware, for -devices
	"github.com/gosdp/gosdp/sdp"
)

// options are the command line's settings.
type options struct {
	host, devices string
	turn          time.Duration
	bytes, zcopy  int
}

func main() {
	var o options
	flag.StringVar(&o.devices, "devices", "shm,iwarp", "a `list` of SDP devices to compare with TCP")
	flag.StringVar(&o.host, "host", "localhost", "the server's `address`; device verbs needs one of an RDMA NIC")
	flag.DurationVar(&o.turn, "turn", 300*time.Millisecond, "duration of each turn of round trips and requests")
	flag.IntVar(&o.bytes, "bytes", 256<<20, "number of bytes in each turn of the transfer")
	flag.IntVar(&o.zcopy, "zcopy", 64<<10, "sdp.Config.ZCopyThreshold: a longer Write is transferred by RDMA without a copy")
	server := flag.String("serve", "", "run the server process for this `device/load` (used internally)")
	flag.Parse()

	err := error(nil)
	if device, name, child := strings.Cut(*server, "/"); child {
		err = o.serve(device, name)
	} else {
		err = o.run(os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "tour:", err)
		os.Exit(1)
	}
}

// config allows one device only. Its time limits suit a busy machine.
func (o options) config(device string) *sdp.Config {
	const limit = time.Minute
	return &sdp.Config{Devices: []string{device}, ZCopyThreshold: o.zcopy,
		ReplyTimeout: limit, HandshakeTimeout: limit, StepUpTimeout: limit}
}

// listen and dial use package net for "tcp". On network "sdp", a fallback to TCP is an error.
func (o options) listen(device, address string) (net.Listener, error) {
	if device == "tcp" {
		return net.Listen("tcp", address)
	}
	return (&sdp.ListenConfig{Config: o.config(device)}).Listen(context.Background(), "sdp", address)
}

func (o options) dial(device, address string) (net.Conn, error) {
	if device == "tcp" {
		return net.Dial("tcp", address)
	}
	return (&sdp.Dialer{Config: o.config(device)}).Dial("sdp", address)
}

// serve runs a server process until the client ends it.
func (o options) serve(device, name string) error {
	i := slices.IndexFunc(loads, func(l load) bool { return l.name == name })
	ln, err := o.listen(device, net.JoinHostPort(o.host, "0"))
	if err != nil {
		return err
	}
	process.Announce(ln.Addr(), func() { os.Exit(0) })
	return loads[i].serve(ln)
}

// A client loads one connection to a server process.
type client struct {
	options
	device string
	conn   net.Conn
	http   http.Client // over conn
	rates  []float64   // units per second, of each turn
}

// run measures every load over TCP and over each device in turns, and prints the results.
func (o options) run(out io.Writer) error {
	names := []string{"tcp"}
	for name := range strings.SplitSeq(o.devices, ",") {
		if err := usable(name); err != nil {
			fmt.Fprintf(out, "Without device %q: %v.\n", name, err)
			continue
		}
		names = append(names, name)
	}

	rates := tabwriter.NewWriter(out, 0, 0, 3, ' ', tabwriter.AlignRight)
	fmt.Fprintf(rates, "\t%s\t\t\n", strings.Join(names, "\t\t"))
	var counters strings.Builder
	stats := tabwriter.NewWriter(&counters, 0, 0, 3, ' ', tabwriter.AlignRight)
	fmt.Fprintln(stats, "\tdevice\tMB in shared memory\tmessages sent\treceived\tMB in messages\tMB by RDMA\tcontrol messages\tcredit stalls\t")
	for _, l := range loads {
		if err := o.compare(l, names, rates, stats); err != nil {
			return err
		}
	}
	fmt.Fprint(out, "Two processes of this machine, one connection each, every byte compared:\n\n")
	err := cmp.Or(rates.Flush(), stats.Flush())
	fmt.Fprint(out, "\nWhat the client's end of each connection counted:\n\n", counters.String())
	return err
}

// usable returns why a device cannot be used here.
func usable(name string) error {
	if device, ok := rdma.LookupDevice(name); ok {
		return device.Probe()
	}
	if name != "shm" || runtime.GOOS != "linux" {
		return errors.New("not supported on this system")
	}
	return nil
}

// compare measures a load over every device and adds the results to both tables.
func (o options) compare(l load, devices []string, rates, stats io.Writer) (err error) {
	var clients []*client
	for _, device := range devices {
		address, stop, err := process.Start(nil, "-serve", device+"/"+l.name, "-host", o.host, "-zcopy", strconv.Itoa(o.zcopy))
		if err != nil {
			return err
		}
		defer stop()
		conn, err := o.dial(device, address)
		if err != nil {
			return err
		}
		defer conn.Close()
		// To adopt SDP, an HTTP client changes only this function.
		over := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return conn, nil }}
		clients = append(clients, &client{options: o, device: device, conn: conn, http: http.Client{Transport: over}})
	}
	for range 3 {
		for _, c := range clients {
			start := time.Now()
			n, err := l.turn(c)
			if err != nil {
				return fmt.Errorf("%s over %s: %w", l.name, c.device, err)
			}
			c.rates = append(c.rates, float64(n)/time.Since(start).Seconds())
		}
	}
	fmt.Fprintf(rates, "%s\t", l.name)
	for _, c := range clients {
		slices.Sort(c.rates)
		median := c.rates[1]
		fmt.Fprintf(rates, "%s\t", l.format(median))
		if conn, ok := c.conn.(*sdp.Conn); ok {
			fmt.Fprintf(rates, "%.1f×\t", median/clients[0].rates[1])
			s := conn.Stats()
			fmt.Fprintf(stats, "%s\t%s\t%.1f\t%d\t%d\t%.1f\t%.1f\t%d\t%d\t\n", l.name, c.device, float64(s.ShmSent+s.ShmReceived)/1e6, s.BcopySent.Messages, s.BcopyReceived.Messages,
				float64(s.BcopySent.Bytes+s.BcopyReceived.Bytes)/1e6, float64(s.ZCopySent+s.ZCopyReceived)/1e6,
				s.ControlSent+s.ControlReceived, s.CreditStalls)
		}
	}
	fmt.Fprintln(rates)
	return nil
}
