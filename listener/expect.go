package listener

import (
	"errors"
	"net"
	"time"

	"github.com/gosdp/gosdp/internal/adopted"
	"github.com/gosdp/gosdp/internal/localpeer"
)

// expectation is what is known of a client before it has sent a byte.
type expectation uint8

const (
	nothing  expectation = iota // it will not send a Request, or has already and is gone
	possible                    // it may send one
	certain                     // it will, or is about to decide that it will not
)

const (
	// It is asked again so often whether a client on this host still means to send its
	// Request.
	recheckFirst = 2 * time.Millisecond
	recheckMost  = 256 * time.Millisecond
)

// expects says what is to be expected of the client on c. It waits for nothing.
func expects(c net.Conn, cfg *Config) expectation {
	if _, ok := c.(securing); ok || cfg.SDPOnly {
		return possible
	}
	if len(cfg.Devices) == 0 || adopted.Settled(c) {
		return nothing
	}
	switch remote := c.RemoteAddr().(type) {
	case *net.UnixAddr:
		if localpeer.IsUnixDialler(remote) {
			return certain
		}
		return nothing
	case *net.TCPAddr:
		other, err := localpeer.Other(c)
		switch {
		case err == nil && other.Dialler && visible(c):
			return certain
		case err == nil, errors.Is(err, localpeer.ErrElsewhere) && onThisHost(c):
			return nothing
		case cfg.Probed != nil && cfg.Probed(addrPort(c.LocalAddr()).Addr().Unmap(), addrPort(remote).Addr().Unmap()):
			return possible
		}
		return nothing
	}
	return possible // there is nothing to tell by
}

// visible reports that the client sees that we serve SDP: it will not send a Request
// otherwise. It connected before the listener was marked, say.
func visible(c net.Conn) bool {
	own, err := localpeer.Own(c)
	return err == nil && own.Listener
}
