// Rping is rdma-core's rping over this project's RNIC interface: a ping that goes
// by RDMA Read and comes back by RDMA Write. It needs no RDMA hardware, and talks
// to an rping that has it, or to Linux's siw. It is also the shortest program on
// package rdma: channel.go is all that it takes.
//
//	go run ./examples/rping -s
//	go run ./examples/rping -c -a server -V -C 1000
//
// The flags are rping's. Those with names of more than one letter are not: they
// say how the connection comes up, for trying a peer out.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
)

// options are the command line.
type options struct {
	server, client    bool
	address, port     string
	count, size       int
	validate, verbose bool

	revision   int
	noCRC, rtr bool
}

func main() {
	if err := run(os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "rping:", err)
		os.Exit(1)
	}
}

// run is the program; the server says to notes where it listens.
func run(args []string, out, notes io.Writer) error {
	var o options
	flags := flag.NewFlagSet("rping", flag.ContinueOnError)
	flags.SetOutput(notes)
	flags.BoolVar(&o.server, "s", false, "server: answer one client")
	flags.BoolVar(&o.client, "c", false, "client")
	flags.StringVar(&o.address, "a", "", "`address` of the server; a server's default is every address")
	flags.StringVar(&o.port, "p", "7174", "`port`")
	flags.IntVar(&o.count, "C", 0, "client: how many `pings`; 0 goes on for ever")
	flags.IntVar(&o.size, "S", 64, "client: `bytes` in a ping, 1 to 65536")
	flags.BoolVar(&o.validate, "V", false, "client: compare what comes back")
	flags.BoolVar(&o.verbose, "v", false, "print each ping")
	flags.IntVar(&o.revision, "mpa", 0, "client: `revision` of MPA, 1 or 2; 0 tries 2, then 1")
	flags.BoolVar(&o.noCRC, "nocrc", false, "do not ask for CRC")
	flags.BoolVar(&o.rtr, "rtr", false, "client: peer-to-peer, in which its device sends first; only MPA revision 2 has it")
	if err := flags.Parse(args); err != nil {
		return err
	}
	switch {
	case o.server == o.client:
		return errors.New("one of -s and -c")
	case o.size < 1 || o.size > maxPing:
		return fmt.Errorf("-S %d: a ping has 1 to %d bytes", o.size, maxPing)
	case o.count < 0:
		return fmt.Errorf("-C %d: not a number of pings", o.count)
	case flags.NArg() > 0:
		return fmt.Errorf("what is %q?", flags.Arg(0))
	case o.server:
		return o.serve(out, notes)
	}
	return o.call(out)
}
