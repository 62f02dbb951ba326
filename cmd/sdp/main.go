// Sdp is the command line tool of the Sockets Direct Protocol for Go.
//
//	sdp <command> [arguments]
//
// "sdp help" lists the commands and "sdp help <command>" describes one.
package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
)

// A command is one of the tool's commands.
type command struct {
	name  string
	usage string // the arguments, as the first line of the help shows them
	short string // one line for the list of commands
	long  string // the rest of the help
	run   func(args []string) error
}

// commands returns all commands, in the order in which the help lists them.
func commands() []*command {
	return append(goCommands(),
		envCommand(),
		versionCommand(),
		checkCommand(),
		checkRulesCommand(),
		statCommand(),
		topCommand(),
		dumpCommand(),
		pingCommand(),
		perfCommand(),
		proxyCommand(),
		completionCommand(),
	)
}

// An exitStatus is an error that ends the tool with this status. The command has
// already printed its message.
type exitStatus int

func (s exitStatus) Error() string { return fmt.Sprintf("exit status %d", int(s)) }

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// run executes the tool and returns its exit status: 2 if its arguments are wrong.
func run(args []string, out, errs io.Writer) int {
	if len(args) == 0 {
		printUsage(errs)
		return 2
	}
	name, args := args[0], args[1:]
	switch name {
	case "help", "-h", "-help", "--help":
		return help(args, out, errs)
	}
	c := lookup(name)
	if c == nil {
		fmt.Fprintf(errs, "sdp: unknown command %q. \"sdp help\" lists the commands.\n", name)
		return 2
	}
	switch err := c.run(args).(type) {
	case nil:
		return 0
	case exitStatus:
		return int(err)
	default:
		fmt.Fprintf(errs, "sdp %s: %v\n", c.name, err)
		return 1
	}
}

func lookup(name string) *command {
	for _, c := range commands() {
		if c.name == name {
			return c
		}
	}
	return nil
}

func help(args []string, out, errs io.Writer) int {
	if len(args) == 0 {
		printUsage(out)
		return 0
	}
	c := lookup(args[0])
	if c == nil {
		fmt.Fprintf(errs, "sdp: unknown command %q. \"sdp help\" lists the commands.\n", args[0])
		return 2
	}
	fmt.Fprintf(out, "usage: sdp %s %s\n\n%s\n", c.name, c.usage, strings.TrimSpace(c.long))
	return 0
}

func printUsage(w io.Writer) {
	fmt.Fprint(w, "Sdp is the tool of the Sockets Direct Protocol for Go.\n\nusage: sdp <command> [arguments]\n\nThe commands are:\n\n")
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	for _, c := range commands() {
		fmt.Fprintf(t, "\t%s\t%s\n", c.name, c.short)
	}
	t.Flush()
	fmt.Fprint(w, "\n\"sdp help <command>\" describes a command.\n")
}
