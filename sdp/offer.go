package sdp

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/gosdp/gosdp/internal/interrupt"
	"github.com/gosdp/gosdp/listener"
	"github.com/gosdp/gosdp/rdma/iwarp"
	"github.com/gosdp/gosdp/wire"
)

// NotSDPError says that the peer speaks plain TCP.
type NotSDPError struct {
	Addr net.Addr // the peer's
	Err  error    // what came instead of an MPA Reply

	waited time.Duration // for the Reply
	usable bool          // both ends go on as plain TCP on this connection
}

// Error returns `peer at 127.0.0.1:80 does not speak SDP: it answered "HTTP/1.1
// 400 Bad"`.
func (e *NotSDPError) Error() string {
	return fmt.Sprintf("peer at %v does not speak SDP: %s", e.Addr, e.reason())
}

func (e *NotSDPError) reason() string {
	var other *iwarp.NotMPAError
	var rejected *iwarp.RejectError
	switch {
	case errors.As(e.Err, &other):
		return fmt.Sprintf("it answered %q", other.Got)
	case errors.As(e.Err, &rejected) && e.usable:
		if v, _ := wire.ParseRejection(rejected.Private); v != wire.Version {
			return fmt.Sprintf("it speaks version %d of the set-up, and we %d", v, wire.Version)
		}
		return "it has no device in common with us"
	case errors.As(e.Err, &rejected):
		return "it rejected the MPA Request"
	case errors.Is(e.Err, os.ErrDeadlineExceeded):
		return fmt.Sprintf("it did not answer within %v", e.waited)
	case errors.Is(e.Err, syscall.ECONNRESET), errors.Is(e.Err, syscall.EPIPE):
		return "it reset the connection"
	case errors.Is(e.Err, io.EOF), errors.Is(e.Err, io.ErrUnexpectedEOF):
		return "it closed the connection"
	}
	return e.Err.Error()
}

// Unwrap returns e.Err.
func (e *NotSDPError) Unwrap() error { return e.Err }

// offer asks the peer for SDP on c. A *NotSDPError says that it lacks that;
// another error ends the attempt. With an error c remains the caller's.
func (a *attempt) offer(ctx context.Context, c net.Conn) (*Conn, error) {
	local := reserve(a.cfg.ReadBuffer)
	defer unreserve(local)
	defer a.dropChannel()
	private, err := a.offers(c)
	if err != nil {
		return nil, err
	}
	asked, reply, err := a.request(ctx, c, local, private)
	if err != nil {
		return nil, err
	}
	choice, peer, err := a.parseReply(reply)
	if err != nil {
		return nil, err
	}
	local.ORD, peer.ORD = min(local.ORD, peer.IRD), min(peer.ORD, local.IRD)
	if choice.Taken {
		return a.take(ctx, c, choice.Device, local, peer)
	}
	qp, err := asked.QueuePair()
	if err != nil {
		return nil, err
	}
	qp.ProvideReceive(recvBuffers, int(local.LocalRcvSz))
	if choice.Device != wire.DeviceIWARP {
		up, err := a.stepUp(ctx, c, asked, qp, choice, local)
		if up != nil || err != nil {
			return up, err
		}
	} else {
		a.passedOver()
	}
	return newConn(c, qp, setup{
		device: wire.DeviceIWARP.String(), dialled: true, declined: a.declined, tuning: a.devices.tuning,
		local: local, peer: peer,
	})
}

// offers returns the private data of our Request, but for the Hello.
func (a *attempt) offers(c net.Conn) ([]byte, error) {
	var o wire.Offers
	a.meetIn = a.meetingDir(c)
	a.declined = a.devices.declined // which is this call's own
	for _, device := range a.devices.usable {
		why := a.failed.of(device.String())
		if err := a.mayReach(device, c); err != nil {
			why = err.Error()
		}
		if why != "" {
			a.declined.set(device.String(), why)
			continue
		}
		o.Devices = append(o.Devices, device)
	}
	a.offerChannel(c, &o)
	if len(o.Devices) == 0 {
		if a.network.only {
			return nil, a.declined.err()
		}
		a.unmark(c)
		return nil, &NotSDPError{Addr: c.RemoteAddr(), Err: a.declined.err(), usable: true}
	}
	a.offered = o.Devices
	client, server := addrPort(c.LocalAddr()), addrPort(c.RemoteAddr())
	if client.IsValid() && server.IsValid() {
		o.Client, o.Server = client, server
	}
	var salt [16]byte
	rand.Read(salt[:])
	o.Host, o.HasHost = listener.HostID(salt)
	a.meetsIn(&o)
	return o.Append(nil)
}

// request sends the Request, and waits for the Reply as long as it may. A
// connection of our own to this host needs no clock for the Request, for which the
// kernel has room, nor for a Reply that is there already.
func (a *attempt) request(ctx context.Context, c net.Conn, local wire.Hello, offers []byte) (*iwarp.Asked, []byte, error) {
	near := (onThisHost(c) || a.confirmed) && a.d != nil
	wait := a.replyTime(ctx)
	if !near {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, wait)
		defer cancel()
		defer interrupt.Conn(ctx, c)()
	}
	asked, err := iwarp.Ask(c, iwarp.Config{
		NoCRC:    !a.cfg.CRC && onThisHost(c),
		IRD:      int(local.IRD),
		ORD:      int(local.ORD),
		MaxULPDU: iwarp.SoftwareULPDU,
	}, local.AppendHello(offers))
	var reply []byte
	if err == nil && a.channel != nil {
		a.channel.Prepare() // while the peer reads the Request
	}
	if err == nil {
		reply, err = a.reply(ctx, wait, near, c, asked)
	}
	if err != nil {
		a.noteStale(err)
		return nil, nil, &NotSDPError{Addr: c.RemoteAddr(), Err: err, waited: wait, usable: keptOpen(err)}
	}
	return asked, reply, nil
}

// noteStale notes that the peer has rejected the Request because the channel that was
// offered is not kept any more.
func (a *attempt) noteStale(err error) {
	var rejected *iwarp.RejectError
	if a.channel != nil && a.idle && errors.As(err, &rejected) && !keptOpen(err) {
		a.stale, a.again = true, true
	}
}

// replyTime is how long the Reply may take.
func (a *attempt) replyTime(ctx context.Context) time.Duration { return share(ctx, a.cfg.ReplyTimeout) }

// share is how much of the context's time something may take that is only worth trying: a
// third of what is left, and d at most. The rest is for doing without SDP.
func share(ctx context.Context, d time.Duration) time.Duration {
	if end, ok := ctx.Deadline(); ok {
		return min(d, time.Until(end)/3)
	}
	return d
}

// reply returns what the peer replies to what was asked on c. For that of a peer on this
// host it looks for a moment.
func (a *attempt) reply(ctx context.Context, d time.Duration, near bool, c net.Conn, asked *iwarp.Asked) ([]byte, error) {
	if near && !asked.Look() {
		return replyWithin(ctx, d, c, asked)
	}
	return asked.Reply()
}

// replyWithin reads the Reply to what was asked on c.
func replyWithin(ctx context.Context, d time.Duration, c net.Conn, asked *iwarp.Asked) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	defer interrupt.Conn(ctx, c)()
	return asked.Reply()
}

// keptOpen reports that err is a rejection by one of ours, whose choice names no
// device and stands alone: the connection goes on as plain TCP.
func keptOpen(err error) bool {
	var rejected *iwarp.RejectError
	if !errors.As(err, &rejected) {
		return false
	}
	_, ok := wire.ParseRejection(rejected.Private)
	return ok
}

// parseReply returns the choice and the HelloAck.
func (a *attempt) parseReply(private []byte) (wire.Choice, wire.Hello, error) {
	choice, ack, err := wire.ParseChoice(private)
	if err != nil {
		return wire.Choice{}, wire.Hello{}, err
	}
	if !slices.Contains(a.offered, choice.Device) {
		return wire.Choice{}, wire.Hello{}, fmt.Errorf("the peer chose %v, which we did not offer", choice.Device)
	}
	hello, err := wire.ParseHelloAck(ack)
	return choice, hello, err
}

// onThisHost reports that c ends where it begins.
func onThisHost(c net.Conn) bool {
	if _, local := c.RemoteAddr().(*net.UnixAddr); local {
		return true
	}
	local, remote := addrPort(c.LocalAddr()).Addr().Unmap(), addrPort(c.RemoteAddr()).Addr().Unmap()
	return remote.IsLoopback() || remote.IsValid() && remote == local
}

// addrPort returns the address of TCP, and an invalid one for another's.
func addrPort(a net.Addr) netip.AddrPort {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.AddrPort{}
	}
	return tcp.AddrPort()
}
