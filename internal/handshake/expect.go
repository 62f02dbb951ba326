package handshake

import (
	"net"

	"github.com/gosdp/gosdp/internal/adopted"
)

// Unless the program or the operator has asked for SDP by name, neither end sends or waits for
// anything: Config.MayAsk decides whether the peer may be asked, and an answer is remembered.

// Prospect is what a client may expect of the server on a new connection.
type Prospect uint8

const (
	Plain   Prospect = iota // it does not speak SDP, or may not be asked: nothing is sent
	Unknown                 // it may be asked
)

// Expect returns what c may expect of the server on conn. It does not block.
func (c *Client) Expect(conn net.Conn) Prospect {
	switch {
	case !c.mayAsk(conn):
		return Plain
	case peers.plain(addrPort(conn.RemoteAddr())):
		peers.watch(conn)
		return Plain
	}
	return Unknown
}

// expects reports whether a server waits for what the client on conn has to say.
func (cfg *Config) expects(conn net.Conn) bool {
	return cfg.SDPOnly || !adopted.Settled(conn) && cfg.mayAsk(conn)
}
