package diagnose

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/gosdp/gosdp/internal/localpeer"
	"github.com/gosdp/gosdp/internal/rules"
	"github.com/gosdp/gosdp/sdp"
)

// The codes of a Path's reason. Scripts use them.
const (
	CodeOff         = "off"            // SDP is switched off
	CodeRule        = "rule"           // a rule in the file that SDP_CONFIG names says TCP
	CodeNoDevice    = "no_device"      // no device can be used on this machine
	CodePlainPeer   = "plain_peer"     // the program at the address does not serve SDP
	CodeUser        = "other_user"     // the peer is another user's program
	CodeHost        = "other_host"     // the peer is on another host, and nothing lets this end ask it
	CodeNamespace   = "namespace"      // the peer is on this host, in another network namespace
	CodeRelay       = "relay"          // something on this host stands between the two ends
	CodeBlind       = "kernel_silent"  // this process may not ask the kernel
	CodeSetup       = "setup_failed"   // the peer serves SDP, but the handshake failed; or no device reaches it
	CodeUnreachable = "cannot_connect" // there is no connection at all
)

// A Path describes a connection to an address.
type Path struct {
	Network string `json:"network"`
	Address string `json:"address"`
	SDP     bool   `json:"sdp"`
	Local   string `json:"local,omitempty"`
	Remote  string `json:"remote,omitempty"`
	Device  string `json:"device,omitempty"`
	// Declined has the reasons why devices are not used, if SDP is used.
	Declined map[string]string `json:"declined,omitempty"`
	Code     string            `json:"code,omitempty"`
	Reason   string            `json:"reason,omitempty"` // why not SDP
	Advice   string            `json:"advice,omitempty"`
	Rule     string            `json:"rule,omitempty"`  // the operator's rule for the address
	Fails    bool              `json:"fails,omitempty"` // a Dial fails: the network or a rule demands SDP
	Took     time.Duration     `json:"took_ns"`
}

// Try connects to the address as a program would, closes the connection, and returns how it was set
// up and why. On network "tcp" a peer without SDP sees a connection that is closed without a byte.
func Try(ctx context.Context, m *Machine, network, address string) *Path {
	p := &Path{Network: network, Address: address}
	var events recorder
	d := sdp.Dialer{Config: &sdp.Config{Logger: slog.New(&events)}}
	start := time.Now()
	c, err := d.DialContext(ctx, network, address)
	p.Took = time.Since(start)
	if err != nil {
		p.Reason = err.Error()
		p.Code = CodeUnreachable
		var not *sdp.NotSDPError
		switch {
		case errors.As(err, &not):
			p.Code, p.Fails = CodePlainPeer, true
			if p.apply(m.Rules, addrPort(not.Addr)) == rules.SDP {
				p.Advice = "the rule asks for SDP, so a Dial of the program fails; let the server serve SDP, or change the rule"
			}
		case !lacksDevice(err):
		case m.Off != "":
			p.Code, p.Fails = CodeOff, true
		case connected(err):
			p.Code, p.Fails = CodeSetup, true
		default:
			p.Code, p.Fails, p.Advice = CodeNoDevice, true, "see what the devices lack"
		}
		return p
	}
	defer c.Close()
	p.Local, p.Remote = c.LocalAddr().String(), c.RemoteAddr().String()
	rule := p.apply(m.Rules, addrPort(c.RemoteAddr()))
	if up, ok := c.(*sdp.Conn); ok {
		s := up.Stats()
		p.SDP, p.Device, p.Declined = true, s.Device, s.Declined
		return p
	}
	if rule == rules.TCP {
		p.Code, p.Reason, p.Advice = CodeRule, "a rule says TCP: "+p.Rule, "change the rule, or put one before it; sdp check-rules shows what a file means"
		return p
	}
	p.explain(m, c, events.reasons())
	return p
}

// lacksDevice reports whether a Dial that demands SDP has failed because no device can be used.
func lacksDevice(err error) bool {
	return err != nil && strings.Contains(err.Error(), "no RDMA device can be used")
}

// connected reports whether a Dial has failed after TCP had connected.
func connected(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Addr != nil
}

// explain returns why c is plain TCP. reasons are those that the library has logged about it.
func (p *Path) explain(m *Machine, c net.Conn, reasons []string) {
	set := func(code, reason, advice string) { p.Code, p.Reason, p.Advice = code, reason, advice }
	other, err := settled(c)
	remote := addrPort(c.RemoteAddr()).Addr().Unmap()
	switch {
	case m.Off != "":
		set(CodeOff, m.Off, "unset SDP_DEVICES")
	case !m.Usable():
		set(CodeNoDevice, "no device is used on this machine", "see what the devices lack")
	case err == nil && other.Listener && other.Owned && int(other.UID) != os.Geteuid():
		set(CodeUser, fmt.Sprintf("the server runs as the user %d and this program as the user %d: they do not share memory", other.UID, os.Geteuid()),
			"run both as one user, or name the other user in Config.PeerUIDs of both")
	case err == nil && !other.Listener:
		set(CodePlainPeer, "the program at the address does not serve SDP (plain TCP)",
			"let it listen with this library, build it with sdp go, or put sdp proxy beside it")
	case len(reasons) > 0:
		set(CodeSetup, reasons[len(reasons)-1], "")
	case err == nil:
		set(CodeSetup, "the server serves SDP, but the two ends did not agree on a device", "run sdp check at the server, too")
	case errors.Is(err, localpeer.ErrBlind):
		set(CodeBlind, "the kernel does not tell this program about the peer", sighted().Advice)
	case ownAddress(remote):
		set(CodeRelay, "the address is one of this host's, but its socket is not the server's: a relay or a rule of nftables stands between",
			"connect to the server itself, or put sdp proxy there")
	default:
		if where := namespaceOf(c); where != "" {
			set(CodeNamespace, "the server is on this host, in another network namespace ("+where+")",
				"mount one directory into both containers and name it in SDP_SHM_DIR")
			return
		}
		set(CodeHost, fmt.Sprintf("the server is on another host, and the way there (from %v) is not one of RDMA hardware", addrPort(c.LocalAddr()).Addr().Unmap()),
			"with RDMA hardware on another network, name the server in SDP_PEERS")
	}
}

// settleTime is how long the server may take to accept the connection.
const settleTime = 200 * time.Millisecond

// settled returns what the kernel reports about the other end, after that was accepted or after
// settleTime.
func settled(c net.Conn) (localpeer.End, error) {
	for end := time.Now().Add(settleTime); ; time.Sleep(time.Millisecond) {
		other, err := localpeer.Other(c)
		if err != nil || other.Owned || time.Now().After(end) {
			return other, err
		}
	}
}

// A recorder keeps the reasons that the library logs.
type recorder struct {
	mu   sync.Mutex
	said []string
}

func (r *recorder) Enabled(context.Context, slog.Level) bool { return true }

func (r *recorder) Handle(_ context.Context, record slog.Record) error {
	var device, reason string
	record.Attrs(func(a slog.Attr) bool {
		switch a.Key {
		case "device":
			device = a.Value.String() + ": "
		case "reason", "error":
			reason = a.Value.String()
		}
		return true
	})
	if reason != "" {
		r.mu.Lock()
		r.said = append(r.said, device+reason)
		r.mu.Unlock()
	}
	return nil
}

func (r *recorder) WithAttrs([]slog.Attr) slog.Handler { return r }
func (r *recorder) WithGroup(string) slog.Handler      { return r }

func (r *recorder) reasons() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.said
}

// addrPort returns a TCP address, or an invalid one for other addresses.
func addrPort(a net.Addr) netip.AddrPort {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.AddrPort{}
	}
	return tcp.AddrPort()
}
