package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/gosdp/gosdp/internal/rules"
	"github.com/gosdp/gosdp/internal/term"
)

const checkRulesHelp = `
Check-rules reads a file of rules, which programs with SDP obey if SDP_CONFIG names it, and
says what it means. Rules say which programs use SDP for which addresses, and with which other
users' programs they may share memory, in the grammar of libsdp.conf:

	use sdp|tcp|both server|client PROGRAM ADDRESS[/BITS]:PORT[-PORT]

	use tcp  client *     10.9.0.0/16:*       # nothing uses SDP to go there
	use both client nats* *:4222              # SDP if the server has it
	use sdp  client etcd* [fd00::]/8:2379     # SDP, or the connection fails
	use tcp  server *     *:22-25             # listeners without SDP
	share    nginx with www-data 1000         # memory with programs of these users
	log min-level 7 destination stderr        # a line for each Dial and Listen

"listen" and "connect" are other words for server and client. The first rule that matches
decides. If none matches, the program behaves as without the file. A name of a program has no
directory; * and ? are wildcards. An address of a server is the one that it listens on;
0.0.0.0 and [::] match a server that listens on all addresses. All share statements for a
program count together; users are numbers, or names from /etc/passwd.

With a program and an address, check-rules says which rule decides, and what happens:

	sdp check-rules -connect /etc/sdp.conf nats-server 10.0.0.1:4222

A file with a mistake is ignored as a whole, so check it before programs use it.

docs/rules.md of github.com/gosdp/gosdp has all of it.`

type checkRulesFlags struct{ listen, connect bool }

func (f *checkRulesFlags) define(fs *flag.FlagSet) {
	fs.BoolVar(&f.listen, "listen", false, "the program listens on the address")
	fs.BoolVar(&f.connect, "connect", false, "the program connects to the address; without either flag both are answered")
}

func checkRulesCommand() *command {
	c := &command{
		name:  "check-rules",
		usage: "[flags] file [program address]",
		short: "say what a file of rules for SDP_CONFIG means",
		long:  checkRulesHelp,
	}
	return withFlags(c, func(f *checkRulesFlags, rest []string) error {
		switch {
		case len(rest) != 1 && len(rest) != 3:
			return misuse(c.name, "got %d arguments, want a file, or a file, a program and an address", len(rest))
		case len(rest) == 1 && (f.listen || f.connect):
			return misuse(c.name, "-listen and -connect need a program and an address")
		}
		return f.run(stdout, rest)
	})
}

func (f *checkRulesFlags) run(w io.Writer, args []string) error {
	set, err := rules.Load(args[0])
	if err != nil {
		printMistakes(w, err)
		return exitStatus(1)
	}
	if len(args) == 1 {
		printRules(w, set)
		return nil
	}
	roles := []rules.Role{rules.Server, rules.Client}
	switch {
	case f.listen && !f.connect:
		roles = roles[:1]
	case f.connect && !f.listen:
		roles = roles[1:]
	}
	program := filepath.Base(args[1])
	own := set.For(program)
	for _, role := range roles {
		addresses, err := resolve(args[2], role)
		if err != nil {
			return err
		}
		for _, a := range addresses {
			r, _ := own.Decide(role, a.Addr(), a.Port())
			printDecision(w, program, role, a, r)
		}
	}
	return nil
}

func printMistakes(w io.Writer, err error) {
	var mistakes rules.Errors
	if !errors.As(err, &mistakes) {
		mistakes = rules.Errors{{Reason: err.Error()}}
	}
	for _, m := range mistakes {
		fmt.Fprintln(w, term.Clean(m.Error()))
	}
	fmt.Fprintln(w, "Programs ignore the whole file, and say so on standard error.")
}

func printRules(w io.Writer, set *rules.Set) {
	if set.Log.Line != 0 {
		fmt.Fprintf(w, "line %d: %s\n    %s\n", set.Log.Line, term.Clean(set.Log.String()), describeLog(&set.Log))
	}
	for i := range set.Rules {
		r := &set.Rules[i]
		fmt.Fprintf(w, "line %d: %s\n    %s\n", r.Line, term.Clean(r.String()), term.Clean(describe(r)))
		if s := set.Shadow(i); s != nil {
			fmt.Fprintf(w, "    This rule never decides, because line %d matches everything that it matches.\n", s.Line)
		}
	}
	for i := range set.Shares {
		h := &set.Shares[i]
		fmt.Fprintf(w, "line %d: %s\n    %s\n", h.Line, term.Clean(h.String()), term.Clean(describeShare(h)))
	}
	fmt.Fprintln(w, "Where no rule matches, programs behave as without the file.")
}

// subject returns which programs a statement is about.
func subject(program string) string {
	if program == "*" {
		return "All programs"
	}
	return "Programs named " + program
}

// describeShare returns what a statement "share" means.
func describeShare(h *rules.Share) string {
	users := make([]string, len(h.Users))
	for i, u := range h.Users {
		users[i] = strconv.Itoa(u.UID)
		if u.Name != "" {
			users[i] += " (" + u.Name + ")"
		}
	}
	return subject(h.Program) + " may share memory with programs of the users " + strings.Join(users, ", ") + ", if those allow it, too."
}

// describe returns what a rule means.
func describe(r *rules.Rule) string {
	who := subject(r.Program)
	address := "any address"
	if r.Prefix.IsValid() {
		address = r.Prefix.String()
		if r.Prefix.IsSingleIP() {
			address = r.Prefix.Addr().String()
		}
		if r.Role == rules.Server && r.Prefix.Addr().IsUnspecified() {
			address += " (which stands for listening on all addresses)"
		}
	}
	ports := "any port"
	switch {
	case r.First == 0:
	case r.First == r.Last:
		ports = fmt.Sprintf("port %d", r.First)
	default:
		ports = fmt.Sprintf("ports %d to %d", r.First, r.Last)
	}
	return fmt.Sprintf("%s: %s to %s, %s.", who, effect(r.Role, r.Use), address, ports) +
		map[bool]string{true: " " + failure[r.Role]}[r.Use == rules.SDP]
}

// effect returns what a program does under a rule, up to the address.
func effect(role rules.Role, use rules.Use) string {
	return [...][3]string{
		rules.Server: {
			rules.Both: "SDP and TCP for clients that come",
			rules.SDP:  "only SDP for clients that come",
			rules.TCP:  "only TCP for clients that come",
		},
		rules.Client: {
			rules.Both: "SDP if possible, otherwise TCP, on the way",
			rules.SDP:  "only SDP on the way",
			rules.TCP:  "only TCP on the way",
		},
	}[role][use]
}

// failure is what else a rule for SDP means.
var failure = [...]string{
	rules.Server: "Connections of other clients are closed.",
	rules.Client: "If that is not possible, the Dial fails.",
}

func describeLog(l *rules.Log) string {
	where := "standard error"
	switch l.Destination {
	case rules.Syslog:
		where = "the system's log"
	case rules.File:
		where = term.Clean(l.Path(os.Geteuid())) + ", for programs of this user"
	}
	what := "Dials that fail because a rule asks for SDP are logged"
	if l.Enabled(rules.LevelSummary) {
		what = "Each Dial and Listen is logged"
	}
	return what + " to " + where + "."
}

func printDecision(w io.Writer, program string, role rules.Role, at netip.AddrPort, r *rules.Rule) {
	verb, use := "connects to", rules.Both
	if role == rules.Server {
		verb = "listens on"
	}
	if r != nil {
		use = r.Use
	}
	result := map[rules.Use]string{
		rules.SDP:  "SDP only. " + failure[role],
		rules.TCP:  "TCP only.",
		rules.Both: "as without rules: TCP, which may move to shared memory, or SDP over RDMA hardware.",
	}[use]
	fmt.Fprintf(w, "%s %s %s: %s\n", term.Clean(program), verb, at, result)
	if r == nil {
		fmt.Fprintln(w, "    no rule matches")
		return
	}
	fmt.Fprintf(w, "    line %d: %s\n", r.Line, term.Clean(r.String()))
}

// resolve returns the addresses that an address of a program stands for.
func resolve(address string, role rules.Role) ([]netip.AddrPort, error) {
	host, service, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	port, err := strconv.ParseUint(service, 10, 16)
	if err != nil || port == 0 {
		return nil, fmt.Errorf("port %q: want 1 to 65535", service)
	}
	var hosts []netip.Addr
	a, err := netip.ParseAddr(host)
	switch {
	case err == nil:
		hosts = []netip.Addr{a}
	case host == "" && role == rules.Server:
		hosts = []netip.Addr{netip.IPv6Unspecified()}
	default:
		if host == "" {
			host = "localhost"
		}
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if hosts, err = net.DefaultResolver.LookupNetIP(ctx, "ip", host); err != nil {
			return nil, err
		}
	}
	var all []netip.AddrPort
	for _, h := range hosts {
		all = append(all, netip.AddrPortFrom(h.Unmap(), uint16(port)))
	}
	return all, nil
}
