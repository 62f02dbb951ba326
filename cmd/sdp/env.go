package main

import (
	"context"
	"flag"
	"fmt"
	"strings"

	"github.com/gosdp/gosdp/internal/adopt"
)

func envCommand() *command {
	c := &command{
		name: "env", usage: "[-iwarp] [-verbs]",
		short: "print the environment in which other build systems use SDP",
		long: `
Prints lines for a shell that set GOROOT, GOTOOLCHAIN and PATH, so that make,
goreleaser, ko or a script that calls the go command builds programs with SDP:

	eval "$(sdp env)"
	make

The version of Go is the one that the go command would use in the current
directory, and stays that one.`,
	}
	define := func(fs *flag.FlagSet) {
		fs.Bool("iwarp", false, "add SDP over RDMA, with the device iwarp")
		fs.Bool("verbs", false, "add SDP over RDMA, and the device for RDMA hardware; needs cgo")
	}
	c.long += flagHelp(define)
	c.run = func(args []string) error {
		rest, err := parseFlags(c, args, define) // which checks what goOptions reads
		switch {
		case err != nil:
			return err
		case len(rest) > 0:
			return misuse(c.name, "unexpected argument %q", rest[0])
		}
		return runEnv(args)
	}
	return c
}

func runEnv(args []string) error {
	options, _ := goOptions(args)
	ctx := context.Background()
	t, err := adopt.Ask(ctx, "go", "", nil)
	if err != nil {
		return err
	}
	goroot, err := makeGOROOT(ctx, t, options)
	if err != nil {
		return err
	}
	adopt.Keep(goroot)
	for _, v := range adopt.Variables(goroot) {
		fmt.Fprintf(stdout, "export %s=%s\n", v[0], quote(v[1]))
	}
	return nil
}

// quote quotes a word for a shell.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
