// Sdp is the command line tool of the Sockets Direct Protocol for Go.
//
//	sdp <command> [arguments]
//
// "sdp help" lists the commands and "sdp help <command>" describes one.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
)

// A command is one of the tool's commands.
type command struct {
	name  string
	usage string              // the arguments, as the first line of the help shows them
	short string              // one line for the list of commands
	long  string              // the text of the help; see also pages
	flags func(*flag.FlagSet) // defines the flags, for the help; nil: there are none, or long has them
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

func main() { os.Exit(run(os.Args[1:], stdout, os.Stderr)) }

// run executes the tool and returns its exit status: 2 if its arguments are wrong, 1 if its output
// was lost.
func run(args []string, out, errs io.Writer) int {
	status := execute(args, out, errs)
	if err := stdout.failed(); err != nil && status == 0 {
		fmt.Fprintf(errs, "sdp: %v\n", err)
		status = 1
	}
	return status
}

func execute(args []string, out, errs io.Writer) int {
	if len(args) == 0 {
		printUsage(errs)
		return 2
	}
	name, args := args[0], args[1:]
	switch name {
	case "help", "-h", "-help", "--help":
		return help(args, out, errs)
	case "-version", "--version":
		name = "version"
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
