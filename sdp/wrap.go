package sdp

import (
	"context"
	"net"

	"github.com/gosdp/gosdp/listener"
)

// Client offers SDP to the peer on a connection that the program has made to a listener
// on "sdp", or to one that calls Server, and
// returns when both ends have agreed, or the peer has shown that it lacks SDP: a
// [*net.OpError] around a [*NotSDPError] then, and conn has carried what it
// cannot take back. Config.ReplyTimeout bounds that, and Config.StepUpTimeout what a
// better device takes. config may be nil. With an error conn is closed.
func Client(conn net.Conn, config *Config) (*Conn, error) {
	n := network{name: "sdp", tcp: "tcp", only: true}
	c, err := client(conn, config)
	if err != nil {
		conn.Close()
		return nil, n.opError("dial", conn.LocalAddr(), conn.RemoteAddr(), err)
	}
	return c, nil
}

func client(conn net.Conn, config *Config) (*Conn, error) {
	dev, err := config.devices(true)
	if err != nil {
		return nil, err
	}
	if len(dev.usable) == 0 {
		return nil, dev.why()
	}
	a := attempt{network: network{name: "sdp", tcp: "tcp", only: true}, cfg: config.filled(), devices: dev}
	return a.offer(context.Background(), conn)
}

// Server serves SDP to the client on a connection that the program has accepted,
// and returns when it is up, which takes a client of plain TCP as long as the
// client takes to show that, at most Config.HandshakeTimeout: it is a [*Conn] if the
// client speaks SDP, and otherwise conn itself, or what stands for it if it is
// no socket. config may be nil. With an error conn is closed. A program that
// accepts many calls it in a goroutine for each. TLS belongs above what it
// returns; a conn of TLS's own is taken too, but comes back wrapped.
func Server(conn net.Conn, config *Config) (net.Conn, error) {
	n := network{name: "tcp", tcp: "tcp"}
	cfg, err := config.listening(n, true)
	if err != nil {
		conn.Close()
		return nil, n.opError("accept", conn.LocalAddr(), conn.RemoteAddr(), err)
	}
	in, err := listener.Serve(context.Background(), conn, cfg.Config)
	if err == nil {
		conn, err = cfg.conn(in)
	}
	if err != nil {
		return nil, n.opError("accept", conn.LocalAddr(), conn.RemoteAddr(), err)
	}
	return conn, nil
}
