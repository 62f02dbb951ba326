// Package handshake sets up SDP on a TCP connection, at both ends. The two halves stand side by
// side, because each must understand what the other one sends:
//
//	client                            server
//	expect.go: may the other end be asked?   (both)
//	                                  server.go: waits for the client's first bytes, or meets it
//	client.go: Request with offers    server.go: reads it, chooses, replies
//	client_channel.go                 server_channel.go: the channel of another device
//	client.go, client_channel.go      decision.go: the client's decision
//
// The states of the server's half (state.go):
//
//	Accepted ──Plain: plain TCP──▶ Ended
//	    │ Run
//	    ▼
//	Securing ──▶ Waiting ──key of a Request──▶ Reading ──Request──▶ Agreeing ──Reply──▶ Deciding
//	                │                             ▲
//	             GiveWay                          │
//	                ▼                             │
//	            Yielding ─────────────────────────┘
//
// GiveWay leads from Securing, Reading, Agreeing and Deciding to Leaving. Run leads from all of them to Ended when it
// returns: the client is plain TCP, has met this end or has decided, or there was an error. What a client
// does after a failure is the table at Client.Next.
//
// What both share is here and in host.go. peek.go tells a client of SDP from one of plain
// TCP, and peers.go remembers which other hosts speak plain TCP. docs/setup.md describes
// the steps, and docs/protocol.md the bytes.
package handshake

import (
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/gosdp/gosdp/internal/events"
	"github.com/gosdp/gosdp/rdma"
	"github.com/gosdp/gosdp/rdma/iwarp"
	"github.com/gosdp/gosdp/rdma/iwarp/mpa"
	"github.com/gosdp/gosdp/wire"
)

// Config says how connections are set up. There are no defaults: a half needs every field
// that is not marked as the other one's.
type Config struct {
	// SDPOnly fails on a peer that does not speak SDP, or has no device in common with this
	// end. Otherwise the connection is plain TCP.
	SDPOnly bool
	// Devices are those that may and can be used, the best one first. Declined has the reasons
	// why the others are not used.
	Devices  []wire.Device
	Declined Reasons
	// Worth returns nil if the device, of Devices, is worth using at a local address. A nil
	// Worth accepts all. It must be safe for concurrent use.
	Worth func(device wire.Device, local netip.Addr) error
	// MayAsk reports whether this end may find out by asking whether the peer speaks SDP: a client
	// sends a Request, and a server waits for one. A nil MayAsk allows none. With SDPOnly it is not
	// used. It must be safe for concurrent use.
	MayAsk func(local, remote netip.Addr) bool

	ReplyTimeout     time.Duration // client: until the server has replied
	PlainTTL         time.Duration // client: how long an address is remembered as plain TCP
	HandshakeTimeout time.Duration // server: from accept to the client's decision
	StepUpTimeout    time.Duration // to open the channel of another device
	DecisionTimeout  time.Duration // the least that a client has after the Reply; 0: 2 s

	// ThroughProxies lets a server open a channel to a client that sees other ends of the
	// TCP connection than the server does.
	ThroughProxies bool
	// CRC asks for CRC between two ends on one host too.
	CRC bool
	// Meet lets a server meet clients in shared memory. The handshake calls it for each connection
	// that it does not take for plain TCP at once. It returns nil if the client cannot meet this end.
	// A nil Meet meets nobody. Meet must be safe for concurrent use.
	Meet func(conn net.Conn) Meeting
	// Logger receives, at debug level, why a connection or a device is not used.
	Logger *slog.Logger

	// Hello has this end's Bufs, LocalRcvSz, MaxAdverts, IRD and ORD. Devices prepare for
	// these.
	Hello wire.Hello
	// Promise returns the Hello of one connection and reserves its buffers. Its error is why there can
	// be no further connection over SDP. If it is nil, the handshake sends Hello. Withdraw releases the
	// buffers. The handshake calls it if it does not lead to SDP; otherwise the owner of the Connection
	// does. Both must be safe for concurrent use.
	Promise  func() (wire.Hello, error)
	Withdraw func(wire.Hello)
}

func (cfg *Config) promise() (wire.Hello, error) {
	if cfg.Promise == nil {
		return cfg.Hello, nil
	}
	return cfg.Promise()
}

func (cfg *Config) withdraw(promised wire.Hello) {
	if cfg.Withdraw != nil {
		cfg.Withdraw(promised)
	}
}

// worth returns nil if the device is worth using on conn, which must then be a socket.
func (cfg *Config) worth(device wire.Device, conn net.Conn) error {
	if !isSocket(conn) {
		return errors.New("connection is not a socket")
	}
	if cfg.Worth == nil {
		return nil
	}
	return cfg.Worth(device, addrPort(conn.LocalAddr()).Addr())
}

// channelConfig returns the configuration of a channel of d.
func (cfg *Config) channelConfig(d rdma.Dialler) rdma.ChannelConfig {
	hello := startHello(d, cfg.Hello)
	return rdma.ChannelConfig{
		IRD:     int(hello.IRD),
		Buffers: int(hello.Bufs),
		BufSize: int(hello.LocalRcvSz),
	}
}

// mpaConfig returns the configuration of MPA for a connection whose ends are, or are not, on
// one host.
func (cfg *Config) mpaConfig(local wire.Hello, sameHost bool) iwarp.Config {
	return iwarp.Config{
		NoCRC:    sameHost && !cfg.CRC,
		IRD:      int(local.IRD),
		ORD:      int(local.ORD),
		MaxULPDU: mpa.SoftwareULPDU,
	}
}

// startHello returns the Hello for a channel of d, which may begin with fewer and smaller buffers.
func startHello(d rdma.Dialler, h wire.Hello) wire.Hello {
	buffers, size := d.Start()
	h.Bufs = uint16(min(int(h.Bufs), buffers))
	h.LocalRcvSz = uint32(min(int(h.LocalRcvSz), size))
	return h
}

// negotiate limits what each end may have outstanding to what the other one accepts.
func negotiate(local, peer wire.Hello) (wire.Hello, wire.Hello) {
	local.ORD = min(local.ORD, peer.IRD)
	peer.ORD = min(peer.ORD, local.IRD)
	return local, peer
}

// A Meeting is what a server does to meet a client. The handshake calls its methods from one goroutine.
type Meeting interface {
	// Try tries once, without waiting, while the handshake waits for the client's first bytes. It returns
	// the connection that the program gets once both ends have met, and nil if they have not met yet. An
	// error means that they will not meet.
	Try() (met net.Conn, err error)
	// Plain returns the connection that the program gets if the client speaks something else than SDP.
	Plain() net.Conn
}

// Connection is the result of a handshake.
type Connection struct {
	// Conn is the connection on which the handshake ran. If the result is plain TCP, the
	// program gets it unchanged, unless both ends agreed on plain TCP during the handshake.
	Conn net.Conn
	// QP is the connected queue pair, with the receive buffers that Local announces. It is
	// nil if the connection is plain TCP, and then nothing below is set.
	QP     rdma.QueuePair
	Device string
	// Met says that Conn is from the Meeting that Config.Meet has returned. QP is then nil.
	Met bool
	// Refused says that the client asked for SDP, and that no device in common works. QP is then nil.
	Refused bool
	// Local and Peer are the Hellos of the two ends, limited by negotiate.
	Local, Peer wire.Hello
	// Promised is what Config.Promise has returned for this connection.
	Promised wire.Hello
	// MustDecide asks the client to send its decision as the first message on QP: an empty
	// Data. First is the header of that message at the server, which has consumed it. On
	// the channel of another device both are unset.
	MustDecide bool
	First      *wire.Header
	// Declined has the reasons why other devices are not used.
	Declined Reasons

	cfg *Config
}

// Discard ends a connection that the program does not get. The peer sees a reset, as a kernel sends
// it for connections in the backlog of a listener that is closed.
func (c *Connection) Discard() {
	if c.QP != nil {
		c.QP.Abort()
		c.cfg.withdraw(c.Promised)
		c.Conn.Close()
		return
	}
	Abort(c.Conn)
}

// DeclinedTotal counts the devices that were allowed for a connection which does not use
// them.
var DeclinedTotal atomic.Uint64

// decline notes in reasons why a device of Devices is not used on the connection with peer. It
// logs the reason at debug level, and at most once a minute for operators.
func (cfg *Config) decline(reasons *Reasons, device wire.Device, peer net.Conn, why error) {
	DeclinedTotal.Add(1)
	reasons.Set(device, why.Error())
	cfg.Logger.Debug("sdp: device not used", "device", device.String(), "peer", peer.RemoteAddr(), "reason", why)
	if why != errNotChosen && why != errNotOffered {
		events.Process.Log(cfg.Logger, slog.LevelInfo, device.String()+why.Error(),
			"sdp: device not used by connections", "device", device.String(), "peer", peer.RemoteAddr(), "reason", why)
	}
}

// These are the reasons why the peer does not use a device. The operator of this end cannot
// change that.
var (
	errNotChosen  = errors.New("not chosen by peer")
	errNotOffered = errors.New("not offered by client")
)

// Reasons are the reasons why devices are not used. Every connection keeps two or three, which
// take a tenth of the memory of a map in a slice.
type Reasons []Reason

// Reason is why one device is not used.
type Reason struct {
	Device wire.Device
	Why    string
}

// Set sets the reason why the device is not used, and replaces an earlier one.
func (r *Reasons) Set(device wire.Device, why string) {
	for i := range *r {
		if (*r)[i].Device == device {
			(*r)[i].Why = why
			return
		}
	}
	*r = append(*r, Reason{device, why})
}

// Of returns the reason why the device is not used, or "" if r has none.
func (r Reasons) Of(device wire.Device) string {
	for _, of := range r {
		if of.Device == device {
			return of.Why
		}
	}
	return ""
}

// Table returns the reasons by the names of the devices.
func (r Reasons) Table() map[string]string {
	table := make(map[string]string, len(r))
	for _, of := range r {
		table[of.Device.String()] = of.Why
	}
	return table
}

// Err returns the error that no device can be used. It names the devices in the order of
// wire.KnownDevices.
func (r Reasons) Err() error {
	text, between := "no RDMA device can be used", ": "
	for _, known := range wire.KnownDevices {
		if why := r.Of(known.Device); why != "" {
			text += between + known.Name + ": " + why
			between = "; "
		}
	}
	return errors.New(text)
}

// dialler returns the device if it makes channels of its own beside the TCP connection.
func dialler(device wire.Device) (rdma.Dialler, bool) {
	known, _ := rdma.LookupDevice(device.String())
	d, ok := known.(rdma.Dialler)
	return d, ok
}

// keepsOpen reports whether err is a rejection after which both ends continue as plain TCP on
// the same connection: its private data is a choice of no device, and nothing else.
func keepsOpen(err error) bool {
	var rejected *mpa.RejectError
	if !errors.As(err, &rejected) {
		return false
	}
	_, ok := wire.ParseRejection(rejected.Private)
	return ok
}

// rejectToPlain sends that rejection.
func rejectToPlain(request *iwarp.Request) error {
	none, err := (&wire.Choice{Device: wire.DeviceNone}).Append(nil)
	if err != nil {
		return err
	}
	return request.Reject(none)
}
