package main

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"

	"github.com/gosdp/gosdp/internal/adopt"
	"github.com/gosdp/gosdp/internal/term"
)

func versionCommand() *command {
	c := &command{
		name: "version", usage: "[file ...]",
		short: "say whether sdp go has built programs",
		long: `
Says of each file whether it is a program that "sdp go" has built, with which
version of this library and of Go. A program that opens no TCP connection has no
SDP, however it was built; one that imports package sdp was built by any go
command. Without files it prints the version of this tool.`,
	}
	c.run = func(args []string) error {
		files, err := parseFlags(c, args, func(*flag.FlagSet) {})
		if err != nil {
			return err
		}
		return runVersion(files)
	}
	return c
}

func runVersion(args []string) error {
	if len(args) == 0 {
		fmt.Fprintln(stdout, "sdp", adopt.Version())
		return nil
	}
	failed := false
	for _, file := range args {
		p, err := adopt.ReadProgram(file)
		name := term.Clean(file)
		switch {
		case errors.As(err, new(*fs.PathError)):
			fmt.Fprintf(stdout, "%s: %s\n", name, term.Clean(unwrapPath(err).Error()))
		case err != nil:
			fmt.Fprintf(stdout, "%s: not a Go program: %s\n", name, term.Clean(unwrapPath(err).Error()))
		case p.SDP:
			fmt.Fprintf(stdout, "%s: SDP of gosdp %s, %s\n", name, term.Clean(p.Version), term.Clean(p.Go))
		default:
			fmt.Fprintf(stdout, "%s: not built by sdp go, %s\n", name, term.Clean(p.Go))
		}
		failed = failed || err != nil || !p.SDP
	}
	if failed {
		return exitStatus(1)
	}
	return nil
}

// unwrapPath returns err without the name of the file, which was printed already.
func unwrapPath(err error) error {
	if p := (*fs.PathError)(nil); errors.As(err, &p) {
		return p.Err
	}
	if inner := errors.Unwrap(err); inner != nil {
		return inner
	}
	return err
}
