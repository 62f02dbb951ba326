package handshake

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"time"

	"github.com/gosdp/gosdp/internal/interrupt"
	"github.com/gosdp/gosdp/internal/timing"
	"github.com/gosdp/gosdp/rdma"
	"github.com/gosdp/gosdp/rdma/iwarp"
	"github.com/gosdp/gosdp/rdma/iwarp/mpa"
	"github.com/gosdp/gosdp/wire"
)

// Client is the client's half, for one Dial. It may try several connections, one after the
// other, and remembers from one to the next what did not work. It is not safe for
// concurrent use.
type Client struct {
	*Config
	// Redials says that the caller can make another connection. It is false for a
	// connection that a program made itself.
	Redials bool

	offered  []wire.Device // on this connection
	declined Reasons       // on this connection

	began   time.Time // when this connection's Request was sent, or a little earlier
	wasLate bool      // on an earlier connection this end was too slow to decide
	refused int       // connections on which another Request may have succeeded
}

// Next is what a Dial does after Connect has failed.
type Next uint8

const (
	Fail   Next = iota // the Dial fails
	Keep               // the connection continues as plain TCP
	Redial             // another connection is plain TCP
	Ask                // another connection is asked
)

// MaxRequests is how many connections a Dial asks that demands SDP.
const MaxRequests = 3

// Next decides about a second attempt after Connect, called with ctx, has failed with err. A program that has
// made the connection itself makes none.
//
//	err                            network tcp   network sdp
//	both ends agreed on plain TCP  Keep          Fail
//	this end was too slow          (as above)    Ask, once
//	MaySucceedLater                Redial        Ask, for MaxRequests connections
//	anything else                  Redial        Fail
func (c *Client) Next(ctx context.Context, err error) Next {
	var not *NotSDPError
	switch {
	case !c.SDPOnly && errors.As(err, &not) && not.Usable:
		return Keep
	case !c.SDPOnly:
		return Redial
	case ctx.Err() != nil:
		return Fail
	case errors.Is(err, errTooLate):
		c.wasLate = true
		return Ask
	case MaySucceedLater(err):
		if c.refused++; c.refused < MaxRequests {
			return Ask
		}
	}
	return Fail
}

// NotSDPError says that the peer does not speak SDP on this connection.
type NotSDPError struct {
	Addr   net.Addr
	Err    error         // what the peer did instead of sending an MPA Reply
	Usable bool          // both ends continue as plain TCP on the same connection
	waited time.Duration // for the Reply
}

// Error returns `peer at 127.0.0.1:80 does not speak SDP: answered "HTTP/1.1 400 Bad"`, or `no
// SDP with peer at 127.0.0.1:80: no device in common`.
func (e *NotSDPError) Error() string {
	var rejected *mpa.RejectError
	if errors.As(e.Err, &rejected) && e.Usable { // a peer that speaks SDP has said so
		return fmt.Sprintf("no SDP with peer at %v: %s", e.Addr, e.Reason())
	}
	return fmt.Sprintf("peer at %v does not speak SDP: %s", e.Addr, e.Reason())
}

// Reason is Error without the address.
func (e *NotSDPError) Reason() string {
	var other *mpa.NotMPAError
	var rejected *mpa.RejectError
	switch {
	case errors.As(e.Err, &other):
		return fmt.Sprintf("answered %q", other.Got)
	case errors.As(e.Err, &rejected) && e.Usable:
		if v, _ := wire.ParseRejection(rejected.Private); v != wire.Version {
			return fmt.Sprintf("set-up version %d, expected %d", v, wire.Version)
		}
		return "no device in common"
	case errors.As(e.Err, &rejected):
		return "MPA Request rejected"
	case errors.Is(e.Err, os.ErrDeadlineExceeded):
		return fmt.Sprintf("no MPA Reply within %v", e.waited)
	case iwarp.IsReset(e.Err):
		return "connection reset"
	case errors.Is(e.Err, io.EOF), errors.Is(e.Err, io.ErrUnexpectedEOF):
		return "connection closed"
	}
	return e.Err.Error()
}

// Unwrap returns e.Err.
func (e *NotSDPError) Unwrap() error { return e.Err }

// MaySucceedLater reports whether err says that the peer reset the connection, as a busy listener does. It may then
// answer a later Request.
func MaySucceedLater(err error) bool {
	var not *NotSDPError
	return errors.As(err, &not) && iwarp.IsReset(err)
}

// Connect offers SDP to the server at the other end of conn. A *NotSDPError says that the
// server does not speak it. With any error conn remains the caller's.
func (c *Client) Connect(ctx context.Context, conn net.Conn) (*Connection, error) {
	local, err := c.promise()
	if err != nil {
		return nil, c.without(conn, err)
	}
	up, err := c.connect(ctx, conn, local)
	if err != nil {
		c.withdraw(local)
		return nil, err
	}
	up.Declined, up.cfg = c.declined, c.Config
	return up, nil
}

func (c *Client) connect(ctx context.Context, conn net.Conn, local wire.Hello) (*Connection, error) {
	offers, err := c.offers(conn)
	if err != nil {
		return nil, err
	}
	c.began = time.Now()
	asked, reply, err := c.request(ctx, conn, local, offers)
	if err != nil {
		return nil, err
	}
	choice, peer, err := c.parseReply(reply)
	if err != nil {
		return nil, err
	}
	promised := local
	local, peer = negotiate(local, peer)
	up := &Connection{Conn: conn, Device: choice.Device.String(), Local: local, Peer: peer, Promised: promised}
	conn.SetDeadline(time.Time{}) // the queue pair sets its own
	qp, err := asked.QueuePair()
	if err != nil {
		return nil, err
	}
	qp.ProvideReceive(int(c.Hello.Bufs), int(local.LocalRcvSz))
	if choice.Device != wire.DeviceIWARP {
		stays, err := c.stepUp(ctx, up, asked, qp, choice)
		if !stays {
			return up, err
		}
	} else if c.notChosen(conn); c.tooLate(conn) {
		if c.SDPOnly {
			qp.Abort()
			return nil, errTooLate
		}
		c.decline(&c.declined, wire.DeviceIWARP, conn, errTooLate)
		return up, c.fallBack(ctx, up, asked, qp)
	}
	up.QP, up.Device, up.MustDecide = qp, wire.DeviceIWARP.String(), true
	return up, nil
}

// tooLate reports whether the server may have stopped waiting for a decision on conn, because this
// process was stopped or is starved. When the server gives up, it closes the connection. It does not
// confirm a decision for SDP, so a connection on which this end had just decided would be lost. It does
// confirm plain TCP. If plain TCP is not allowed, another connection is asked once (Next). Where that is
// not possible, to decide is the best that this end can do.
//
// The server waits from its Reply on, so one whose Reply was late still waits. If plain TCP is not
// allowed, the time therefore counts from the arrival of the Reply, where the kernel tells that.
func (c *Client) tooLate(conn net.Conn) bool {
	since := time.Since(c.began)
	if c.SDPOnly {
		if !c.Redials || c.wasLate {
			return false
		}
		if arrived, known := sinceArrival(conn); known {
			since = arrived
		}
	}
	return since > max(c.StepUpTimeout, c.decisionTime())
}

var errTooLate = errors.New("handshake timed out at this end; the peer may have given up")

// offers returns the private data of the Request, except for the Hello.
func (c *Client) offers(conn net.Conn) ([]byte, error) {
	var o wire.Offers
	c.declined = slices.Clip(c.Config.Declined)
	for _, device := range c.Devices {
		if err := c.reaches(device, conn); err != nil {
			c.declined.Set(device, err.Error())
			continue
		}
		o.Devices = append(o.Devices, device)
	}
	if len(o.Devices) == 0 {
		return nil, c.without(conn, c.declined.Err())
	}
	c.offered = o.Devices
	client, server := addrPort(conn.LocalAddr()), addrPort(conn.RemoteAddr())
	if client.IsValid() && server.IsValid() {
		o.Client, o.Server = client, server
	}
	o.Host, o.HasHost = HostID()
	return o.Append(nil)
}

// without returns the error of a connection on which nothing was offered, and why.
func (c *Client) without(conn net.Conn, why error) error {
	if c.SDPOnly {
		return why
	}
	return &NotSDPError{Addr: conn.RemoteAddr(), Err: why, Usable: true}
}

// reaches returns nil if the device is worth offering to the server at the other end of
// conn.
func (c *Client) reaches(device wire.Device, conn net.Conn) error {
	d, ok := dialler(device)
	if !ok {
		return nil // iwarp uses the connection itself
	}
	if err := c.worth(device, conn); err != nil {
		return err
	}
	return d.Reaches(rdma.Peer{Local: addrPort(conn.LocalAddr()), Remote: addrPort(conn.RemoteAddr())})
}

// request sends the Request and waits for the Reply.
func (c *Client) request(ctx context.Context, conn net.Conn, local wire.Hello, offers []byte) (*iwarp.Asked, []byte, error) {
	wait := c.ReplyTimeout
	if !c.SDPOnly {
		wait = share(ctx, wait)
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	sent := interrupt.Conn(ctx, conn)
	asked, err := iwarp.Ask(conn, c.mpaConfig(local, OnThisHost(conn)), local.AppendHello(offers))
	sent()
	var reply []byte
	if err == nil {
		reply, err = replyWithin(ctx, wait, conn, asked)
	}
	if err != nil {
		return nil, nil, &NotSDPError{Addr: conn.RemoteAddr(), Err: err, waited: wait, Usable: keepsOpen(err)}
	}
	return asked, reply, nil
}

// share returns how much time an attempt at SDP may take: a third of the context's remaining
// time, but at most d. The rest is for plain TCP.
func share(ctx context.Context, d time.Duration) time.Duration {
	if end, ok := ctx.Deadline(); ok {
		return min(d, time.Until(end)/3)
	}
	return d
}

// replyWithin reads the Reply on conn, and waits for at most d. A Reply that has arrived when the time
// is over is read too: this process may have been stopped, and the server's program may have the
// connection.
func replyWithin(ctx context.Context, d time.Duration, conn net.Conn, asked *iwarp.Asked) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	stop := interrupt.Conn(ctx, conn)
	reply, err := asked.Reply()
	stop()
	if _, nothing := err.(*net.OpError); nothing && errors.Is(err, os.ErrDeadlineExceeded) && arrived(conn) {
		conn.SetReadDeadline(time.Now().Add(timing.LastLook))
		reply, err = asked.Reply()
		conn.SetReadDeadline(time.Time{})
	}
	return reply, err
}

// parseReply returns the choice and the HelloAck.
func (c *Client) parseReply(private []byte) (wire.Choice, wire.Hello, error) {
	choice, ack, err := wire.ParseChoice(private)
	if err != nil {
		return wire.Choice{}, wire.Hello{}, err
	}
	if !slices.Contains(c.offered, choice.Device) {
		return wire.Choice{}, wire.Hello{}, fmt.Errorf("peer chose %v, which was not offered", choice.Device)
	}
	hello, err := wire.ParseHelloAck(ack)
	return choice, hello, err
}

// notChosen declines the devices that the server has not chosen.
func (c *Client) notChosen(conn net.Conn) {
	for _, device := range c.offered {
		if device != wire.DeviceIWARP {
			c.decline(&c.declined, device, conn, errNotChosen)
		}
	}
}
