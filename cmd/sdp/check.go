package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/gosdp/gosdp/internal/diagnose"
	"github.com/gosdp/gosdp/internal/term"
)

func checkCommand() *command {
	c := &command{
		name:  "check",
		usage: "[flags] [address]",
		short: "say whether connections here or to an address are faster than TCP, and why not",
		long:  checkHelp,
	}
	return withFlags(c, func(f *checkFlags, rest []string) error {
		switch {
		case len(rest) > 1:
			return misuse(c.name, "got %d addresses, want at most one", len(rest))
		case f.network != "tcp" && f.network != "sdp":
			return misuse(c.name, "-network %s: want tcp or sdp", f.network)
		case f.timeout <= 0:
			return misuse(c.name, "-timeout %v: must be positive", f.timeout)
		}
		if len(rest) == 1 {
			if err := validAddress(rest[0]); err != nil {
				return misuse(c.name, "%v", err)
			}
		}
		return f.run(rest)
	})
}

const checkHelp = `
Without an address, check lists SDP's devices with what this machine lacks, for a program of
this user; -v adds what each needs. With an address, host:port, it connects there as a program
would, and says in a line or two how the connection goes: over TCP, and to shared memory when
that pays; over RDMA; or over plain TCP, and why. On one host it makes two connections, which
it closes at once. A server without SDP sees no byte on them. -v adds the details, and what
check -v prints without an address.

Run it as the user, and in the container, of the program in question: permissions, limits
and namespaces differ.

The devices are

	shm     shared memory, between programs of one host
	verbs   RDMA hardware
	iwarp   RDMA in software over TCP; slower than TCP, and used only if it is named

If SDP_CONFIG names a file of rules, check obeys those for the program that -program names,
and says which one applies to the address. "sdp check-rules" says what the file means.

With -json the field code of an address is one of off, rule, no_device, plain_peer, other_user,
other_host, setup_failed and cannot_connect.`

// validAddress returns an error if address is not host:port.
func validAddress(address string) error {
	host, port, err := net.SplitHostPort(address)
	if err != nil || host == "" {
		return fmt.Errorf("%q: want host:port", address)
	}
	if n, err := net.LookupPort("tcp", port); err != nil || n == 0 {
		return fmt.Errorf("%q: unknown port %q", address, port)
	}
	return nil
}

type checkFlags struct {
	json    bool
	verbose bool
	network string
	program string
	timeout time.Duration
}

func (f *checkFlags) define(fs *flag.FlagSet) {
	fs.BoolVar(&f.json, "json", false, "print JSON")
	fs.BoolVar(&f.verbose, "v", false, "print details")
	fs.StringVar(&f.network, "network", "tcp", "connect on this `network`: tcp; or sdp, on which the server must speak SDP")
	fs.StringVar(&f.program, "program", "", "obey the rules in SDP_CONFIG for the program of this `name`")
	fs.DurationVar(&f.timeout, "timeout", 10*time.Second, "the `time` that connecting may take")
}

// The exit statuses of check.
const (
	checkPlain       = 1
	checkUnreachable = 3
)

func (f *checkFlags) run(addresses []string) error {
	if f.program != "" {
		os.Args = []string{f.program} // by which rules know a program
	}
	report := struct {
		*diagnose.Machine
		Path *diagnose.Path `json:"path,omitempty"`
	}{Machine: diagnose.Inspect()}
	if len(addresses) > 0 {
		ctx, cancel := context.WithTimeout(context.Background(), f.timeout)
		defer cancel()
		report.Path = diagnose.Try(ctx, report.Machine, f.network, addresses[0])
	}
	switch {
	case f.json:
		printJSON(report)
	case report.Path == nil:
		printMachine(stdout, report.Machine, f.verbose)
	default:
		printPath(stdout, report.Path)
		if r := report.Rules; r != nil && r.Mistake != "" && !f.verbose {
			printRulesFile(stdout, r)
		}
		if f.verbose {
			printDetails(stdout, report.Path)
			fmt.Fprintln(stdout)
			printMachine(stdout, report.Machine, true)
		}
	}
	switch p := report.Path; {
	case p == nil && report.Machine.Usable(), p != nil && p.SDP:
		return nil
	case p != nil && p.Code == diagnose.CodeUnreachable:
		return exitStatus(checkUnreachable)
	}
	return exitStatus(checkPlain)
}

// printMachine prints a line for each device, and what is missing for it. verbose adds what there is.
func printMachine(w io.Writer, m *diagnose.Machine, verbose bool) {
	for _, d := range m.Devices {
		state := "used"
		switch {
		case m.Off != "":
			state = "switched off"
		case d.Usable && !d.Default:
			state = "not used by default"
		case !d.Usable:
			state = "cannot be used"
		}
		if d.Reason != "" {
			state += ": " + term.Clean(d.Reason)
		}
		fmt.Fprintf(w, "%-6s %s\n", d.Name, state)
		for _, n := range d.Needs {
			if !verbose && (n.OK || n.Optional || d.OnlyIfNamed) {
				continue
			}
			mark := "ok"
			switch {
			case !n.OK && n.Optional:
				mark = "--"
			case !n.OK:
				mark = "NO"
			}
			fmt.Fprintf(w, "   %s  %s: %s\n", mark, n.Name, term.Clean(n.Found))
			if n.Advice != "" && !n.OK {
				fmt.Fprintf(w, "       %s\n", n.Advice)
			}
		}
	}
	if m.Off != "" {
		fmt.Fprintf(w, "%s\n", m.Off)
	}
	if m.Invalid != "" {
		fmt.Fprintf(w, "Dial and Listen fail: %s\n", term.Clean(m.Invalid))
	}
	if len(m.Settings) > 0 {
		fmt.Fprintf(w, "environment: %s\n", term.Clean(strings.Join(m.Settings, " ")))
	}
	if m.Rules != nil {
		printRulesFile(w, m.Rules)
	}
}

func printRulesFile(w io.Writer, r *diagnose.Rules) {
	if r.Mistake != "" {
		fmt.Fprintf(w, "rules: programs ignore the file: %s\n", term.Clean(r.Mistake))
		return
	}
	fmt.Fprintf(w, "rules: %s has %d, of which %d are for programs named %s\n", term.Clean(r.File), r.Count, r.Own, term.Clean(r.Program))
}

// printPath prints the answer: one line, and a second one for what the operator can do.
func printPath(w io.Writer, p *diagnose.Path) {
	fmt.Fprintf(w, "%s: ", p.Address)
	switch {
	case p.MovesTo != "":
		fmt.Fprintln(w, "TCP; moves to shared memory when that pays")
	case p.Device == "shm":
		fmt.Fprintln(w, "shared memory from the first byte")
	case p.SDP:
		fmt.Fprintf(w, "SDP over %s\n", p.Device)
	case p.Code == diagnose.CodeUnreachable:
		fmt.Fprintf(w, "no connection: %s\n", term.Clean(p.Reason))
	case p.Fails:
		fmt.Fprintf(w, "no SDP, so a Dial fails: %s\n", term.Clean(p.Reason))
	default:
		fmt.Fprintf(w, "plain TCP: %s\n", term.Clean(p.Reason))
	}
	if p.Advice != "" {
		fmt.Fprintf(w, "   %s\n", p.Advice)
	}
}

func printDetails(w io.Writer, p *diagnose.Path) {
	fmt.Fprintf(w, "   network %s, connected in %s", p.Network, term.Duration(p.Took))
	if p.Local != "" {
		fmt.Fprintf(w, " from %s to %s", p.Local, p.Remote)
	}
	fmt.Fprintln(w)
	if p.Rule != "" {
		fmt.Fprintf(w, "   rule: %s\n", term.Clean(p.Rule))
	}
	for _, name := range slices.Sorted(maps.Keys(p.Declined)) {
		fmt.Fprintf(w, "   not %s: %s\n", name, term.Clean(p.Declined[name]))
	}
}
