// Swap runs a go command on a program or on tests, and makes their connections use SDP
// without a change to their source:
//
//	go run ./test/swap [-devices shm,iwarp] [-library DIR] [-module PATH@VERSION | -C DIR] go test|build|run|vet ARGS...
//
// It replaces net.Dialer.DialContext and net.ListenConfig.Listen on the networks tcp, tcp4
// and tcp6, by an overlay (-overlay) of package net. net.Dial, net.DialTimeout, net.Listen,
// httptest and net/http's default transport call these two methods. net.DialTCP,
// net.ListenTCP and other networks do not change.
//
// With -module, swap downloads the module and works on a temporary copy. Otherwise it works
// on the module in the current directory, or in the directory given by -C, and changes no
// file there. Only the packages that the command names import package hook, which sets the
// replacements. All of them must belong to the module.
//
// -library is the directory of gosdp. By default, swap runs go list in the current directory
// to find it.
//
// -devices sets SDP_DEVICES for the command. If it is "tcp", the same binaries use plain TCP:
// the methods are not replaced. A binary made by go build reads SDP_DEVICES itself.
//
// If the environment variable SDP_SWAP_REPORT names a file, a hooked program appends a line
// to it for each connection that net.Dial or Accept returns:
//
//	program process dial|accept device
//
// where device is tcp for a connection without SDP. With -devices tcp nothing is reported.
//
// Some programs behave differently, or are not hooked:
//
//   - A type assertion to *net.TCPConn or *net.TCPListener fails.
//   - A program that uses gosdp itself would run SDP over SDP.
//   - Programs that a test compiles are not hooked. A test binary that starts itself again
//     is hooked.
//   - DNS over TCP is also hooked.
//   - The command runs in its own process group and cannot read from a terminal.
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
	flag.StringVar(&s.devices, "devices", "", "`list` for SDP_DEVICES: shm, iwarp, shm,iwarp, or tcp for plain TCP")
	flag.StringVar(&s.library, "library", "", "`directory` of gosdp (default: the one that go list finds)")
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

// status returns the exit status for an error of run. It prints the error unless the go
// command has.
func status(err error, interrupted bool) int {
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit) && exit.ExitCode() > 0:
		return exit.ExitCode()
	case interrupted:
		return 130 // as shells report a program ended by SIGINT
	case err != nil:
		fmt.Fprintln(os.Stderr, "swap:", err)
		return 2
	}
	return 0
}
