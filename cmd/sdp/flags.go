package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/gosdp/gosdp/internal/units"
)

// withFlags gives a command flags of type F. It runs the command with the flags and the arguments that
// follow them.
func withFlags[F any, P interface {
	*F
	define(*flag.FlagSet)
}](c *command, run func(f P, rest []string) error) *command {
	c.flags = P(new(F)).define
	c.run = func(args []string) error {
		f := P(new(F))
		rest, err := parseFlags(c, args, f.define)
		if err != nil {
			return err
		}
		return run(f, rest)
	}
	return c
}

// parseFlags parses a command's arguments. With -h it prints the command's help. In that case,
// and if an argument is wrong, it returns the exit status as an error.
func parseFlags(c *command, args []string, define func(*flag.FlagSet)) (rest []string, err error) {
	fs := flag.NewFlagSet("sdp "+c.name, flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	define(fs)
	switch err := fs.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		help([]string{c.name}, stdout, os.Stderr)
		return nil, exitStatus(0)
	case err != nil:
		return nil, misuse(c.name, "%v", err)
	}
	return fs.Args(), nil
}

// sizeVar defines a flag for a number of bytes, such as 64 or 1M.
func sizeVar(fs *flag.FlagSet, n *int, name string, value int, usage string) {
	*n = value
	fs.Var((*size)(n), name, usage)
}

type size int

func (s *size) String() string { return fmt.Sprint(int(*s)) }

func (s *size) Set(text string) error {
	n, err := units.Bytes(text)
	if err == nil && int64(int(n)) != n {
		err = errors.New("out of range")
	}
	if err == nil {
		*s = size(n)
	}
	return err
}

// misuse prints what is wrong with a command's arguments, and returns the exit status for that.
func misuse(name, format string, args ...any) error {
	text := strings.TrimSpace(fmt.Sprintf(format, args...))
	fmt.Fprintf(os.Stderr, "sdp %s: %s. \"sdp help %s\" describes the command.\n", name, text, name)
	return exitStatus(2)
}
