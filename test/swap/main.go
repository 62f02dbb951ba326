// Swap runs a go command on a program or on tests whose connections are to be
// SDP, without a change to their source:
//
//	go run ./test/swap [-devices shm,iwarp] [-library DIR] [-module PATH@VERSION | -C DIR] go test|build|run|vet ARGS...
//
// It replaces net.Dialer.DialContext and net.ListenConfig.Listen on the networks
// tcp, tcp4 and tcp6, by an overlay (-overlay) of package net. net.Dial,
// net.DialTimeout, net.Listen, httptest and the default transport of net/http
// call these two methods. net.DialTCP, net.ListenTCP and other networks are
// unchanged.
//
// With -module, swap downloads the module and works on a temporary copy. Without,
// it works on the module in the current directory or in the directory that -C
// names, and changes no file there. The packages that the command names, and no
// others, import package hook, which sets the replacements. All of them must
// belong to the module.
//
// -library names the directory of gosdp. The default is what go list finds in the
// current directory.
//
// -devices sets SDP_DEVICES for the command. With "tcp" alone the same binaries
// use plain TCP: neither method is replaced. A binary that go build has produced
// reads SDP_DEVICES itself.
//
// If the environment variable SDP_SWAP_REPORT names a file, a hooked program
// appends a line to it for each connection that net.Dial or Accept has returned:
//
//	program process dial|accept device
//
// where device is tcp for a connection without SDP. Nothing is reported with
// -devices tcp.
//
// These programs behave differently, or are not hooked:
//
//   - A type assertion to *net.TCPConn or *net.TCPListener fails.
//   - A program that calls gosdp itself would use SDP over SDP.
//   - Programs that a test compiles are not hooked. A test binary that starts
//     itself is.
//   - DNS over TCP is hooked as everything else.
//   - A command runs in a process group of its own and cannot read a terminal.
//
// The exit status is that of the go command, or 2 if swap itself fails.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
)

func main() {
	s := swap{in: os.Stdin, out: os.Stdout, err: os.Stderr}
	flag.StringVar(&s.devices, "devices", "", "`list` for SDP_DEVICES: shm, iwarp, shm,iwarp, or tcp for no SDP")
	flag.StringVar(&s.library, "library", "", "`directory` of gosdp (default: what go list finds)")
	flag.StringVar(&s.module, "module", "", "`path@version` of a module to download and work on")
	flag.StringVar(&s.dir, "C", "", "`directory` to work in")
	flag.Usage = func() {
		fmt.Fprintln(os.Stderr, "usage: swap [flags] go test|build|run|vet ARGS...")
		flag.PrintDefaults()
	}
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := s.run(ctx, flag.Args())
	interrupted := ctx.Err() != nil
	stop()
	os.Exit(status(err, interrupted))
}

// status returns the exit status for what run has returned, and prints errors
// that the go command has not printed.
func status(err error, interrupted bool) int {
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit) && exit.ExitCode() > 0:
		return exit.ExitCode()
	case interrupted:
		return 130 // what shells say of a program that SIGINT ended
	case err != nil:
		fmt.Fprintln(os.Stderr, "swap:", err)
		return 2
	}
	return 0
}
