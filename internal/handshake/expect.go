package handshake

import (
	"errors"
	"net"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/gosdp/gosdp/internal/adopted"
	"github.com/gosdp/gosdp/internal/localpeer"
	"github.com/gosdp/gosdp/internal/shmdir"
	"github.com/gosdp/gosdp/wire"
)

// Before a byte is sent, each end finds out whether the other one speaks SDP. On this host
// the kernel shows the marks of both sockets (package localpeer). Each end also checks that
// the other one sees its own mark, so that both come to the same answer. On other hosts
// Config.MayAsk decides, and other containers of this host may be found in Config.Dir.

// Prospect is what a client may expect of the server on a new connection.
type Prospect uint8

const (
	Plain      Prospect = iota // it does not speak SDP: nothing is sent
	Recognised                 // it is on this host, and speaks SDP
	Unknown                    // it is on another host, and may be asked
	Announced                  // it is in another container of this host, and speaks SDP
	Gone                       // it speaks SDP, and has closed the connection already
)

// Expect returns what c may expect of the server on conn. If that is plain TCP, it calls Forgo.
func (c *Client) Expect(conn net.Conn) Prospect {
	p := c.expect(conn)
	if p == Plain {
		c.Forgo(conn)
	}
	return p
}

// Forgo removes the mark of conn and ends its claims, because no Request will be sent, and a
// listener might wait for one.
func (c *Client) Forgo(conn net.Conn) {
	unmark(conn)
	c.EndClaims()
}

func (c *Client) expect(conn net.Conn) Prospect {
	claimed := c.hasClaim(conn)
	if claimed && !peers.plain(addrPort(conn.RemoteAddr())) && c.confirm(conn) { // the kernel does not show the server
		return Announced
	}
	server, err := localpeer.Other(conn)
	if err == nil && server.Listener && c.mayShare(server) {
		if localpeer.Shows(conn, localpeer.Dialler) {
			return Recognised
		}
		server, err = localpeer.Other(conn) // it may have been closed meanwhile
	}
	switch {
	case err == nil:
		return Plain
	case errors.Is(err, localpeer.ErrElsewhere) && OnThisHost(conn):
		if _, err := localpeer.Own(conn); server.Listener && errors.Is(err, localpeer.ErrElsewhere) {
			return Gone
		}
		return Plain // a relay is between the ends
	case !claimed && !peers.plain(addrPort(conn.RemoteAddr())) && c.confirm(conn): // says why there is no claim
		return Announced
	case !c.mayAsk(conn):
		return Plain
	case peers.plain(addrPort(conn.RemoteAddr())):
		peers.watch(conn)
		return Plain
	}
	return Unknown
}

// mayShare reports whether a device can connect this end with the server. Only shm cannot, if
// this program may not share memory with programs of the server's user.
func (c *Client) mayShare(server localpeer.End) bool {
	if len(c.Devices) > 1 || !c.has(wire.DeviceSHM) || !server.Owned {
		return true
	}
	return int(server.UID) == os.Geteuid() || slices.Contains(c.UIDs, int(server.UID))
}

func unmark(conn net.Conn) {
	if sc, ok := conn.(syscall.Conn); ok {
		if rc, err := sc.SyscallConn(); err == nil {
			localpeer.Unmark(rc, localpeer.Dialler)
		}
	}
}

// expectation is what a server knows of a client before the client has sent a byte.
type expectation uint8

const (
	nothing  expectation = iota // no Request will arrive, or its client has closed the connection
	possible                    // a Request may arrive
	certain                     // a Request will arrive, unless the client is about to decide against it
)

// Until the Request of a client on this host arrives, the server checks whether the client still
// intends to send it: after recheckFirst, and then at growing intervals. A client that removes its mark
// after the server's first look, because it may not share memory with the server's user, waits for
// as long. A connection that claims fit waits for shmdir.HoldTime in vain and until the check after that,
// so its intervals are no longer.
const (
	recheckFirst = 250 * time.Microsecond
	recheckMost  = 256 * time.Millisecond
)

// recheckAfter returns the interval that follows one.
func (h *Incoming) recheckAfter(wait time.Duration) time.Duration {
	if h.held != nil {
		return min(4*wait, shmdir.HoldTime)
	}
	return min(4*wait, recheckMost)
}

// expects returns what the server may expect of the client on conn. It does not block.
func (cfg *Config) expects(conn net.Conn) expectation {
	if _, ok := conn.(securing); ok || cfg.SDPOnly {
		return possible
	}
	if len(cfg.Devices) == 0 || adopted.Settled(conn) {
		return nothing
	}
	switch remote := conn.RemoteAddr().(type) {
	case *net.UnixAddr:
		if localpeer.IsUnixDialler(remote) {
			return certain
		}
		return nothing
	case *net.TCPAddr:
		client, err := localpeer.Other(conn)
		switch {
		case err == nil && client.Dialler && localpeer.Shows(conn, localpeer.Listener):
			return certain
		case err == nil, errors.Is(err, localpeer.ErrElsewhere) && OnThisHost(conn):
			return nothing
		case cfg.mayAsk(conn):
			return possible
		}
		return nothing
	}
	return possible // its address does not tell
}
