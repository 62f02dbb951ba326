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

	"github.com/gosdp/gosdp/internal/meeting"
	"github.com/gosdp/gosdp/internal/rules"
	"github.com/gosdp/gosdp/sdp"
)

// The codes of a Path's reason. Scripts use them.
const (
	CodeOff         = "off"            // SDP is switched off
	CodeRule        = "rule"           // a rule in the file that SDP_CONFIG names says TCP
	CodeNoDevice    = "no_device"      // no device can be used on this machine
	CodePlainPeer   = "plain_peer"     // the program at the address does not share memory, or does not speak SDP
	CodeUser        = "other_user"     // the peer is a program of a user with whom this one does not share memory
	CodeHost        = "other_host"     // the peer is on another host or in another network namespace, and nothing lets this end ask it
	CodeSetup       = "setup_failed"   // the peer could not be met for another reason, or the handshake of RDMA failed
	CodeUnreachable = "cannot_connect" // there is no connection at all
)

// A Path describes a connection to an address.
type Path struct {
	Network string `json:"network"`
	Address string `json:"address"`
	SDP     bool   `json:"sdp"` // it can be faster than TCP
	Local   string `json:"local,omitempty"`
	Remote  string `json:"remote,omitempty"`
	Device  string `json:"device,omitempty"`   // with which a connection begins
	MovesTo string `json:"moves_to,omitempty"` // the device to which it moves when that pays
	// Declined has the reasons why devices are not used, if the connection begins with RDMA.
	Declined map[string]string `json:"declined,omitempty"`
	Code     string            `json:"code,omitempty"`
	Reason   string            `json:"reason,omitempty"` // why it stays on TCP
	Advice   string            `json:"advice,omitempty"`
	Rule     string            `json:"rule,omitempty"`  // the operator's rule for the address
	Fails    bool              `json:"fails,omitempty"` // a Dial fails: the network or a rule demands SDP
	Took     time.Duration     `json:"took_ns"`
}

// Try connects to the address as a program would, closes the connection, and returns how it was set
// up and why. If the connection might move to shared memory, Try makes another one, to see whether
// it would. On network "tcp" a server without SDP sees connections that are closed without a byte.
func Try(ctx context.Context, m *Machine, network, address string) *Path {
	p := &Path{Network: network, Address: address}
	var events recorder
	d := sdp.Dialer{Config: &sdp.Config{Logger: slog.New(&events), ReplyTimeout: time.Second}}
	start := time.Now()
	c, err := d.DialContext(ctx, network, address)
	p.Took = time.Since(start)
	if err != nil {
		p.failed(m, err)
		return p
	}
	defer c.Close()
	p.Device, p.Local, p.Remote = "tcp", c.LocalAddr().String(), c.RemoteAddr().String()
	rule := p.apply(m.Rules, addrPort(c.RemoteAddr()))
	up, ok := c.(*sdp.Conn)
	if !ok {
		p.explain(m, c, events.reasons())
		return p
	}
	s := up.Stats()
	p.Declined = s.Declined
	switch {
	case s.Device != "tcp":
		p.SDP, p.Device = true, s.Device
	case network == "sdp" || rule == rules.SDP: // the two ends have met
		p.SDP, p.Device = true, shm
	default:
		p.meet(ctx)
		local, remote := addrPort(c.LocalAddr()).Addr(), addrPort(c.RemoteAddr()).Addr()
		if dir := os.Getenv("SDP_SHM_DIR"); p.Code == CodePlainPeer && dir != "" && !meeting.OneNamespace(local, remote) {
			p.Advice = "let it use this library, and the directory that is " + dir + " here, in its SDP_SHM_DIR"
		}
	}
	return p
}

// failed records why a Dial failed.
func (p *Path) failed(m *Machine, err error) {
	p.Reason, p.Code = err.Error(), CodeUnreachable
	var not *sdp.NotSDPError
	switch {
	case errors.As(err, &not):
		p.Fails = true
		p.notMet(not, CodePlainPeer)
		if p.apply(m.Rules, addrPort(not.Addr)) == rules.SDP {
			p.Advice = "the rule asks for SDP, so a Dial of the program fails; let the server serve SDP, or change the rule"
		}
	case !lacksDevice(err):
	case m.Off != "":
		p.Code, p.Fails = CodeOff, true
	default:
		p.Code, p.Fails, p.Advice = CodeNoDevice, true, "see what the devices lack"
	}
}

// lacksDevice reports whether a Dial that demands SDP has failed because no device can be used.
func lacksDevice(err error) bool {
	return err != nil && strings.Contains(err.Error(), "no RDMA device can be used")
}

// meet finds out whether the server can be met in shared memory.
func (p *Path) meet(ctx context.Context) {
	d := sdp.Dialer{Config: &sdp.Config{Devices: []string{shm}, ReplyTimeout: time.Second}}
	c, err := d.DialContext(ctx, "sdp", p.Remote)
	var not *sdp.NotSDPError
	switch {
	case err == nil:
		c.Close()
		p.SDP, p.MovesTo = true, shm
	case errors.As(err, &not):
		p.notMet(not, CodeSetup)
	default:
		p.Code, p.Reason = CodeSetup, err.Error()
	}
}

// notMet records why a peer was not met. The code is that of reasons that are not known here.
func (p *Path) notMet(not *sdp.NotSDPError, code string) {
	p.Code, p.Reason = code, not.Err.Error()
	switch {
	case strings.Contains(p.Reason, "peer does not share memory"):
		p.Code, p.Reason = CodePlainPeer, "the server does not share memory"
		p.Advice = "let it listen with this library, build it with sdp go, or put sdp proxy beside it"
	case strings.Contains(p.Reason, "peer closed the connection"):
		p.Code, p.Reason = CodePlainPeer, "the server closed the connection, and did not share memory"
	case strings.Contains(p.Reason, "peer runs as user"):
		p.Code = CodeUser
		p.Advice = "run both as one user, or let both share memory with the other's user: Config.PeerUIDs, SDP_PEER_UIDS, or a rule"
	case strings.Contains(p.Reason, "no shared memory between these addresses"):
		p.Code = CodeHost
	}
}

// explain returns why c is a connection of package net. reasons are those that the library has logged about it.
func (p *Path) explain(m *Machine, c net.Conn, reasons []string) {
	set := func(code, reason, advice string) { p.Code, p.Reason, p.Advice = code, reason, advice }
	local, remote := addrPort(c.LocalAddr()).Addr(), addrPort(c.RemoteAddr()).Addr()
	switch {
	case p.Rule != "" && m.Rules.of(p.Network, addrPort(c.RemoteAddr())).Use == rules.TCP:
		set(CodeRule, "a rule says TCP: "+p.Rule, "change the rule, or put one before it; sdp check-rules shows what a file means")
	case m.Off != "":
		set(CodeOff, m.Off, "unset SDP_DEVICES")
	case !m.Usable():
		set(CodeNoDevice, "no device is used on this machine", "see what the devices lack")
	case len(reasons) > 0:
		set(CodeSetup, reasons[len(reasons)-1], "")
	case meeting.OneNamespace(local, remote):
		set(CodeNoDevice, "shm is not used: "+m.device(shm).Reason, "see what the devices lack")
	default:
		set(CodeHost, fmt.Sprintf("the server is on another host or in another network namespace, and the way there (from %v) is not one of RDMA hardware", local.Unmap()),
			"with RDMA hardware on another network, name the server in SDP_PEERS; containers of one host need SDP_SHM_DIR")
	}
}

// A recorder keeps the reasons that the library logs about a Dial.
type recorder struct {
	mu   sync.Mutex
	said []string
}

func (r *recorder) Enabled(context.Context, slog.Level) bool { return true }

func (r *recorder) Handle(_ context.Context, record slog.Record) error {
	if !strings.HasPrefix(record.Message, "sdp: dial: ") {
		return nil
	}
	record.Attrs(func(a slog.Attr) bool {
		if a.Key == "reason" {
			r.mu.Lock()
			r.said = append(r.said, a.Value.String())
			r.mu.Unlock()
		}
		return true
	})
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
