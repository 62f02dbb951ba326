package policy

import (
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

// rulesReader reads the file once.
var rulesReader atomic.Pointer[func() *rulesFile]

func init() { ReadRulesAgain() }

// ReadRulesAgain makes the next Dial or Listen read the file again. It is for tests.
func ReadRulesAgain() {
	once := sync.OnceValue(readRules)
	rulesReader.Store(&once)
}

func readRules() *rulesFile {
	name := Getenv(configVariable)
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
func (o *Options) noteRules() {
	if f := operator(); f != nil && f.err != nil {
		events.Process.Log(o.logger(), slog.LevelWarn, f.err.Error(), "sdp: rules file ignored", "reason", f.err)
	}
}

// rules returns the operator's rules for a Dial or a Listen on the network; nil: there are none,
// or the program has decided itself, by the name of the network or by Config.Devices.
func (o *Options) rules(n Network) *rules.Set {
	f := operator()
	if f == nil || f.set == nil || n.TCP == "unix" || n.Only || o.listsDevices() {
		return nil
	}
	return f.set
}

// Ruled returns the network under the rule for an address that a program has given to Dial or Listen. If
// the rule depends on what a name stands for, known is false.
func (o *Options) Ruled(n Network, role rules.Role, address string) (ruled Network, known bool) {
	set := o.rules(n)
	if set == nil {
		return n, true
	}
	colon := strings.LastIndexByte(address, ':')
	if colon < 0 {
		return n, true // which Dial and Listen report
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
	r, known := set.Decide(role, a, uint16(port))
	return n.ruled(r), known
}

// RuledAt returns the network under the rule for the address of a socket.
func (o *Options) RuledAt(n Network, role rules.Role, address net.Addr) Network {
	set := o.rules(n)
	if set == nil {
		return n
	}
	var at netip.AddrPort
	if tcp, ok := address.(*net.TCPAddr); ok {
		at = tcp.AddrPort()
	} else if address != nil {
		at, _ = netip.ParseAddrPort(address.String()) // that of a listener that wraps another one
	}
	if !at.IsValid() {
		return n
	}
	r, _ := set.Decide(role, at.Addr(), at.Port())
	return n.ruled(r)
}

// Logs reports whether the operator's file configures a log that takes messages of the level.
func Logs(level int) bool {
	f := operator()
	return f != nil && f.set != nil && f.set.Log.Enabled(level)
}

// Log writes to the log that the operator's file configures.
func Log(level int, text string) {
	if Logs(level) {
		f := operator()
		f.set.Log.Write(level, f.program, text)
	}
}

// Why says which rule has decided how the network is used.
func (n Network) Why() string {
	if n.Rule == nil {
		return "no rule"
	}
	return fmt.Sprintf("line %d: %v", n.Rule.Line, n.Rule)
}
