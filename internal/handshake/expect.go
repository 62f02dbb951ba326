package handshake

import (
	"net"

	"github.com/gosdp/gosdp/internal/adopted"
)

// Unless the program or the operator has asked for SDP by name, neither end sends or waits for
// anything: Config.MayAsk decides whether the peer may be asked, and an answer is remembered.

// Asks reports whether the server on conn may be asked and is not known to speak plain TCP. It does
// not block.
func (c *Client) Asks(conn net.Conn) bool {
	if !c.mayAsk(conn) {
		return false
	}
	plain := peers.plain(addrPort(conn.RemoteAddr()))
	if plain {
		peers.watch(conn)
	}
	return !plain
}

// expects reports whether a server waits for what the client on conn has to say.
func (cfg *Config) expects(conn net.Conn) bool {
	return cfg.SDPOnly || !adopted.Settled(conn) && cfg.mayAsk(conn)
}

// mayAsk reports whether the peer of conn may be asked.
func (cfg *Config) mayAsk(conn net.Conn) bool {
	local, remote := addrPort(conn.LocalAddr()).Addr(), addrPort(conn.RemoteAddr()).Addr()
	return len(cfg.Devices) > 0 && cfg.MayAsk != nil && remote.IsValid() && cfg.MayAsk(local.Unmap(), remote.Unmap())
}
