package sdp

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/gosdp/gosdp/internal/events"
	"github.com/gosdp/gosdp/internal/rules"
	"github.com/gosdp/gosdp/sdp/stats"
)

// rulesFile is the file that SDP_CONFIG names, as far as it concerns this program.
type rulesFile struct {
	set     *rules.Set // nil: the file has a mistake, and is ignored
	err     error      // the mistake
	program string
}

// operator is the file with the operator's rules; nil: SDP_CONFIG is not set. The file is read at
// the first Dial or Listen, and not again.
func operator() *rulesFile { return (*rulesReader.Load())() }

// rulesReader reads the file once. Tests replace it.
var rulesReader atomic.Pointer[func() *rulesFile]

func init() { readAgain() }

func readAgain() {
	once := sync.OnceValue(readRules)
	rulesReader.Store(&once)
}

func readRules() *rulesFile {
	name := getenv(configVariable)
	if name == "" {
		return nil
	}
	f := &rulesFile{program: rules.Program()}
	set, err := rules.Load(name)
	if err != nil {
		// A program that has worked must not stop because of a mistake in a file that may be for
		// others, but the mistake must be seen. Most programs have no Logger.
		f.err = err
		fmt.Fprintf(os.Stderr, "sdp: %s ignored: %v\n", configVariable, err)
		return f
	}
	f.set = set.For(f.program)
	return f
}

// noteRules logs that the file is ignored.
func (c *Config) noteRules() {
	if f := operator(); f != nil && f.err != nil && c != nil {
		events.Process.Log(c.Logger, slog.LevelWarn, f.err.Error(), "sdp: rules file ignored", "reason", f.err)
	}
}

// rulesFor returns the operator's rules for a Dial or a Listen on the network; nil: there are none,
// or the program has decided itself, by the name of the network or by Config.Devices.
func (c *Config) rulesFor(n network) *rules.Set {
	f := operator()
	if f == nil || f.set == nil || n.tcp == "unix" || n.only || c != nil && c.Devices != nil {
		return nil
	}
	return f.set
}

// rule returns the rule for an address that a program has given to Dial or Listen; nil: there is
// none. If that depends on what a name stands for, known is false.
func (c *Config) rule(n network, role rules.Role, address string) (r *rules.Rule, known bool) {
	set := c.rulesFor(n)
	if set == nil {
		return nil, true
	}
	colon := strings.LastIndexByte(address, ':')
	if colon < 0 {
		return nil, true // which Dial and Listen report
	}
	host := strings.TrimSuffix(strings.TrimPrefix(address[:colon], "["), "]")
	a, err := netip.ParseAddr(host)
	if err != nil && host == "" && role == rules.Server {
		a = netip.IPv6Unspecified()
	}
	port, err := strconv.ParseUint(address[colon+1:], 10, 16)
	if err != nil {
		port = 0 // it is a name
	}
	return set.Decide(role, a, uint16(port))
}

// ruleAt returns the rule for the address of a socket; nil: there is none.
func (c *Config) ruleAt(n network, role rules.Role, address net.Addr) *rules.Rule {
	set := c.rulesFor(n)
	if set == nil {
		return nil
	}
	var at netip.AddrPort
	if tcp, ok := address.(*net.TCPAddr); ok {
		at = tcp.AddrPort()
	} else if address != nil {
		at, _ = netip.ParseAddrPort(address.String()) // that of a listener that wraps another one
	}
	if !at.IsValid() {
		return nil
	}
	r, _ := set.Decide(role, at.Addr(), at.Port())
	return r
}

// ruled returns the network as it is under a rule.
func (n network) ruled(r *rules.Rule) network {
	if r == nil {
		return n
	}
	n.rule = r
	n.only = r.Use == rules.SDP
	n.plain = r.Use == rules.TCP
	return n
}

// demanded returns err with the rule that has made it an error.
func (n network) demanded(err error) error {
	if n.rule == nil || err == nil {
		return err
	}
	return &demandedError{fmt.Sprintf("%s:%d", operator().set.File, n.rule.Line), err}
}

// A demandedError is an error because a rule asks for SDP.
type demandedError struct {
	rule string
	err  error
}

func (e *demandedError) Error() string { return e.rule + " requires SDP: " + e.err.Error() }
func (e *demandedError) Unwrap() error { return e.err }

// logDial writes to the log that the operator's file has configured.
func (n network) logDial(e *stats.Dial, c net.Conn, err error) {
	f := operator()
	if f == nil || f.set == nil || f.set.Log.Line == 0 {
		return
	}
	level, address, result := rules.LevelSummary, e.Address, "plain TCP: "+e.Why()
	switch {
	case e.Device == "":
	case e.Device != devicePlain:
		result = "connection over " + e.Device
	case n.only:
		result = "peer met in shared memory"
	default:
		result = "TCP, may move to shared memory"
	}
	if err != nil {
		result = err.Error()
		var demanded *demandedError
		if errors.As(err, &demanded) {
			level = rules.LevelError
		}
	} else if addr := c.RemoteAddr(); addr != nil && addr.String() != address {
		address += " (" + addr.String() + ")"
	}
	f.log(level, "connect "+n.name+" "+address, result, n.rule)
}

// logStayed writes to that log that a connection has ended that never used shared memory, and why not.
func logStayed(c carrier) {
	f := operator()
	if f == nil || f.set == nil || !f.set.Log.Enabled(rules.LevelSummary) {
		return
	}
	if why := c.Stats().Stayed(); why != "" {
		f.write(rules.LevelSummary, fmt.Sprintf("close %v to %v: stayed on TCP: %s", c.LocalAddr(), c.RemoteAddr(), why))
	}
}

// logListen is logDial for a listener.
func (n network) logListen(address net.Addr, set *settings) {
	f := operator()
	if f == nil || f.set == nil || f.set.Log.Line == 0 {
		return
	}
	result := "SDP and TCP"
	switch {
	case len(set.Devices) == 0 && !set.shm:
		result = "TCP only"
	case n.only:
		result = "SDP only"
	}
	f.log(rules.LevelSummary, "listen "+n.name+" "+address.String(), result, n.rule)
}

func (f *rulesFile) log(level int, what, result string, r *rules.Rule) {
	why := "no rule"
	if r != nil {
		why = fmt.Sprintf("line %d: %v", r.Line, r)
	}
	f.write(level, fmt.Sprintf("%s: %s (%s)", what, result, why))
}

func (f *rulesFile) write(level int, text string) {
	if f.set.Log.Enabled(level) {
		f.set.Log.Write(level, f.program, text)
	}
}
