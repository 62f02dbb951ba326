// Rping implements rdma-core's rping with this project's device interface: a ping is
// fetched by RDMA Read and echoed by RDMA Write. It needs no RDMA hardware, and works
// with an rping on RDMA hardware or on Linux's siw. It is also a minimal program for
// package rdma: channel.go has all calls to it.
//
//	go run ./examples/rping -s
//	go run ./examples/rping -c -a server -V -C 1000
//
// One-letter flags are rping's. The others choose how the connection is set up, to test
// a peer.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
)

// options are the flags.
type options struct {
	server, client    bool
	address, port     string
	count, size       int
	validate, verbose bool

	revision   int
	noCRC, rtr bool
}

func main() {
	if err := run(os.Args[1:], os.Stdout, os.Stderr); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "rping:", err)
		os.Exit(1)
	}
}

// run runs the program. The server writes the address where it listens to notes.
func run(args []string, out, notes io.Writer) error {
	var o options
	flags := flag.NewFlagSet("rping", flag.ContinueOnError)
	flags.SetOutput(notes)
	flags.BoolVar(&o.server, "s", false, "server: answer one client")
	flags.BoolVar(&o.client, "c", false, "client")
	flags.StringVar(&o.address, "a", "", "`address` of the server; by default a server listens on all addresses")
	flags.StringVar(&o.port, "p", "7174", "`port`")
	flags.IntVar(&o.count, "C", 0, "client: number of `pings`; 0 means no limit")
	flags.IntVar(&o.size, "S", 64, "client: `bytes` in a ping, 1 to 65536")
	flags.BoolVar(&o.validate, "V", false, "client: validate the echoes")
	flags.BoolVar(&o.verbose, "v", false, "print each ping")
	flags.IntVar(&o.revision, "mpa", 0, "client: MPA `revision`, 1 or 2; 0 tries 2, then 1")
	flags.BoolVar(&o.noCRC, "nocrc", false, "do not ask for CRC")
	flags.BoolVar(&o.rtr, "rtr", false, "client: use the peer-to-peer mode of MPA revision 2, in which the client's device sends first")
	if err := flags.Parse(args); err != nil {
		return err
	}
	switch {
	case o.server == o.client:
		return errors.New("exactly one of -s and -c is required")
	case o.size < 1 || o.size > maxPing:
		return fmt.Errorf("-S %d: a ping has 1 to %d bytes", o.size, maxPing)
	case o.count < 0:
		return fmt.Errorf("-C %d: the number of pings must not be negative", o.count)
	case flags.NArg() > 0:
		return fmt.Errorf("unexpected argument %q", flags.Arg(0))
	case o.server:
		return o.serve(out, notes)
	}
	return o.call(out)
}
