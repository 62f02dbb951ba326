package sdp

import (
	"context"
	"errors"
	"net"

	"github.com/gosdp/gosdp/internal/adopted"
	"github.com/gosdp/gosdp/internal/handshake"
	"github.com/gosdp/gosdp/internal/netname"
	"github.com/gosdp/gosdp/internal/policy"
)

var errSettled = errors.New("SDP already negotiated by package net (program built with sdp go); use the connection as it is")

// Client performs the client's side of the SDP handshake on a connection that the program
// has made, to a listener on network "sdp" or to a program that calls [Server]. It returns
// when both ends have agreed. Once it has returned, ctx does not affect the connection. config may be nil.
//
// Client closes conn if it returns an error, because conn has carried bytes of the handshake. If the peer does
// not speak SDP, the error is a [*net.OpError] that wraps a [*NotSDPError]. Config.ReplyTimeout limits the wait
// for the peer, by default to 2 min.
func Client(ctx context.Context, conn net.Conn, config *Config) (*Conn, error) {
	n := policy.Network{Name: "sdp", TCP: "tcp", Only: true}
	set, err := config.settings(n, true)
	set.network = netname.Unnamed
	if err == nil && adopted.Settled(conn) {
		err = errSettled
	}
	if err == nil {
		var c *Conn
		if c, err = set.client(ctx, &handshake.Client{Config: &set.handshake}, conn); err == nil {
			return c, nil
		}
	}
	conn.Close()
	return nil, n.OpError("dial", conn.LocalAddr(), conn.RemoteAddr(), contextError(ctx, publicError(err)))
}

// Server performs the server's side of the SDP handshake on a connection that the program
// has accepted. It returns a [*Conn] if the client speaks SDP. Otherwise it returns conn, or,
// if conn is not a socket, a wrapper that first returns the bytes that Server has read. Once it has returned, ctx
// does not affect the connection. config may be nil. Server closes conn if it returns an error.
//
// Server waits for the first bytes of a client for at most Config.HandshakeTimeout, so a program should call it in a
// goroutine for each connection. Deadlines of conn hold for a plain client, except that a silent one on a
// connection that is no socket loses them. A [*Conn] over RDMA begins without deadlines.
func Server(ctx context.Context, conn net.Conn, config *Config) (net.Conn, error) {
	if adopted.Settled(conn) {
		return conn, nil
	}
	n := policy.TCP
	set, err := config.settings(n, true)
	if err != nil {
		conn.Close()
		return nil, n.OpError("accept", conn.LocalAddr(), conn.RemoteAddr(), err)
	}
	if _, tcp := conn.(*net.TCPConn); len(set.Devices) == 0 && !(set.shm && tcp) {
		return conn, nil
	}
	set.network = netname.Unnamed
	met := set
	set.handshake.Meet = met.meeting
	var served net.Conn
	up, err := handshake.Serve(ctx, conn, set.handshake)
	if err == nil {
		served, err = set.conn(up)
	}
	if err == nil && ctx.Err() != nil { // it may have ended the wait for the client, which was then taken for plain TCP
		served.Close()
		err = ctx.Err()
	}
	if err != nil {
		return nil, n.OpError("accept", conn.LocalAddr(), conn.RemoteAddr(), contextError(ctx, err))
	}
	return served, nil
}
