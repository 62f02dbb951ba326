package handshake

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"syscall"

	"github.com/gosdp/gosdp/internal/localpeer"
	"github.com/gosdp/gosdp/internal/shmdir"
	"github.com/gosdp/gosdp/rdma"
	"github.com/gosdp/gosdp/wire"
)

// Programs of different network namespaces of one host find each other in a directory that
// they share (package shmdir). The client claims a connection there before it connects, and
// the listener answers when it accepts.

// meets reports whether programs of other network namespaces can be reached.
func (cfg *Config) meets() bool { return cfg.Dir != nil && cfg.has(wire.DeviceSHM) }

// dirPath returns the path of Dir, "" if there is none.
func (cfg *Config) dirPath() string {
	if cfg.Dir == nil {
		return ""
	}
	return cfg.Dir.Path()
}

// inDirectory is the part of a Client that deals with the directory.
type inDirectory struct {
	over      *overChannel   // the claim of the last connection over a kept channel; nil: none
	claims    *shmdir.Claims // of the last connection; nil: none
	confirmed bool           // the listener expects a Request on it
	meetIn    string         // the directory in which both ends meet; "": in the network namespace
}

// Claim has d tell listeners that are announced in the directory of its connections. It does
// nothing if the program chooses the local address, because the socket would be bound twice.
// EndClaims must follow.
func (c *Client) Claim(d *net.Dialer) {
	c.EndClaims()
	if !c.meets() || d.LocalAddr != nil {
		return
	}
	claims := c.Dir.NewClaims(c.UIDs)
	c.claims = claims
	over := &overChannel{cfg: c.Config, over: !c.Redials || c.stale}
	c.over = over
	control, before := d.ControlContext, d.Control
	d.ControlContext = func(ctx context.Context, network, address string, rc syscall.RawConn) (err error) {
		switch {
		case control != nil:
			err = control(ctx, network, address, rc)
		case before != nil:
			err = before(network, address, rc)
		}
		if err == nil && !over.claim(rc, address) {
			claims.Add(rc, address)
		}
		return err
	}
}

// EndClaims ends the claims of the last connection.
func (c *Client) EndClaims() {
	c.over.drop()
	if c.claims != nil {
		c.claims.Close()
		c.claims, c.confirmed = nil, false
	}
}

// hasClaim reports whether a listener of another container was told of conn.
func (c *Client) hasClaim(conn net.Conn) bool {
	return c.over.on(conn) || c.claims != nil && c.claims.Made(addrPort(conn.LocalAddr()), addrPort(conn.RemoteAddr()))
}

// confirm reports whether a listener of another container, which is announced in the
// directory, has the other end of conn and expects a Request.
func (c *Client) confirm(conn net.Conn) bool {
	if c.claims == nil || c.confirmed {
		return c.confirmed
	}
	if c.over.on(conn) {
		c.confirmed = true // unless await says otherwise
		return true
	}
	err := c.claims.Confirm(addrPort(conn.LocalAddr()), addrPort(conn.RemoteAddr()))
	if err != nil && err != shmdir.ErrNotAnnounced {
		c.decline(&c.declined, wire.DeviceSHM, conn, err)
	}
	c.confirmed = err == nil
	return c.confirmed
}

// late returns an error if the listener that has confirmed conn, or is to confirm it over the channel
// that is offered, does not expect a Request any more. Both ends then go on with plain TCP. A server
// that may be asked anyway is: it may be another one than the channel's, behind a service's address.
func (c *Client) late(conn net.Conn) (err error) {
	switch {
	case !c.confirmed || c.SDPOnly:
		return nil
	case c.over.on(conn):
		asks := c.mayAsk(conn)
		if err = c.over.await(!asks); err != nil && asks {
			c.confirmed = false
			return nil
		}
	default:
		err = c.claims.Late()
	}
	if err == nil {
		return nil
	}
	c.decline(&c.declined, wire.DeviceSHM, conn, err)
	return &NotSDPError{Addr: conn.RemoteAddr(), Err: err, Usable: true}
}

// worked notes that the connection that was confirmed uses SDP.
func (c *Client) worked() {
	if c.confirmed {
		c.claims.Worked()
	}
}

// meetingDir returns the directory in which to meet the server at the other end of conn; "" if
// the server is in this network namespace, or there is no directory.
func (c *Client) meetingDir(conn net.Conn) string {
	if _, tcp := conn.RemoteAddr().(*net.TCPAddr); !tcp || !c.meets() || OnThisHost(conn) {
		return ""
	}
	if !c.confirmed {
		if _, err := localpeer.Other(conn); err == nil {
			return "" // both ends are addresses of this network namespace
		}
	}
	return c.Dir.Path()
}

// meet has the offers say in which directory the ends meet.
func (c *Client) meet(o *wire.Offers) {
	if c.meetIn != "" && o.HasHost {
		o.MeetIn(c.Dir.ID())
	}
}

// explain adds to the error that shm does not reach the server why no directory helps.
func (c *Client) explain(device wire.Device, err error) error {
	if err != nil && device == wire.DeviceSHM && c.DirErr != nil {
		return fmt.Errorf("%w; %w", err, c.DirErr)
	}
	return err
}

// announceInDir shows clients of other network namespaces that SDP is served at the address.
// If that fails they do not see it, and use plain TCP.
func (s *Server) announceInDir(at netip.AddrPort) {
	s.cfg.Dir.Clean()
	a, err := s.cfg.Dir.Announce(s.cfg.UIDs)
	if err == nil {
		s.announcer = a
		err = a.AddListener(at)
	}
	if err != nil {
		s.cfg.Logger.Warn("sdp: announce to other containers failed", "address", at, "reason", err)
	}
}

// claimed answers the claims that may be for the connection, over kept channels or in the directory. It
// returns nil if there are none. A client that has claimed it over a channel has sent nothing, or its
// Request. One that is closed already may have had a port that is another client's by now.
//
// It also announces the address that the client has connected to if that is a new one, because
// interfaces come and go.
func (h *Incoming) claimed() rdma.Claim {
	if OnThisHost(h.conn) {
		return nil
	}
	local, remote := addrPort(h.conn.LocalAddr()), addrPort(h.conn.RemoteAddr())
	if !local.IsValid() || !remote.IsValid() {
		return nil
	}
	if h.spoke != isPlain {
		if c := h.listeners.claimed(remote); c != nil {
			return c
		}
	}
	if h.announcer == nil {
		return nil
	}
	if err := h.announcer.Add(local); err != nil {
		h.cfg.Logger.Debug("sdp: announce address to other containers failed", "address", local, "reason", err)
	}
	if held := h.announcer.Claimed(remote); held != nil {
		return held
	}
	return nil
}

// stillExpects returns what is to be expected of a client that has not sent its Request yet.
func (h *Incoming) stillExpects() expectation {
	if h.held == nil {
		return h.cfg.expects(h.conn)
	}
	if h.held.Expected() {
		return certain
	}
	h.ReleaseClaims(false)
	h.expected = h.cfg.expects(h.conn)
	return h.expected
}

// ReleaseClaims ends the claims on the connection, whose client has sent its Request (asked) or
// not. The handshake calls it before it replies, so that the client finds the listener ready for
// its next claim, and the caller of Accepted when the handshake is over.
func (h *Incoming) ReleaseClaims(asked bool) {
	if h.held != nil {
		h.held.Release(asked)
		h.held = nil
	}
}

// meetsElsewhere returns an error if the client offers a channel in a directory that this end
// does not share with it.
func (h *Incoming) meetsElsewhere(t rdma.Transport, offers *wire.Offers, client *rdma.Peer) error {
	_, offered := t.(rdma.Offerer)
	switch {
	case !offered || !offers.HasDir || client.InDir:
		return nil
	case h.cfg.Dir == nil:
		return errors.New("client uses a shm directory; none is set at this end (SDP_SHM_DIR)")
	}
	return errors.New("client uses another shm directory")
}

// translated reports whether the ends see different addresses of the server because the
// kernel translates those of a service: the client has connected to one of Services, and its
// own address and port are the same for both ends.
func (h *Incoming) translated(offers *wire.Offers, client *rdma.Peer) bool {
	service := offers.Server.Addr().Unmap()
	return client.InDir && offers.SameTuple(client.Remote, offers.Server) &&
		slices.ContainsFunc(h.cfg.Services, func(p netip.Prefix) bool { return p.Contains(service) })
}
