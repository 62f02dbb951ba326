package handshake

import (
	"crypto/rand"
	"net"
	"net/netip"
	"sync"

	"github.com/gosdp/gosdp/wire"
)

// thisHost is the same string in all programs on this host, in one network namespace. It is empty
// if that is not known.
var thisHost = sync.OnceValue(readHost)

// HostID returns a HostID under a new random salt, by which a peer finds out whether it is on this
// host. It returns false if this host has no identity. It is safe for concurrent use.
func HostID() (wire.HostID, bool) {
	host := thisHost()
	if host == "" {
		return wire.HostID{}, false
	}
	var salt [16]byte
	rand.Read(salt[:])
	return wire.NewHostID(salt, host), true
}

// madeHere reports whether a peer made its HostID on this host.
func madeHere(peer wire.HostID) bool {
	host := thisHost()
	return host != "" && peer.SameHost(host)
}

// OnThisHost reports whether conn ends on the host where it begins, as far as its addresses
// show: it is a Unix socket, or both ends have one address, or the remote one is a loopback address. It
// decides about checksums and short waits; package local decides who may share memory.
func OnThisHost(conn net.Conn) bool {
	if _, unix := conn.RemoteAddr().(*net.UnixAddr); unix {
		return true
	}
	local, remote := addrPort(conn.LocalAddr()).Addr().Unmap(), addrPort(conn.RemoteAddr()).Addr().Unmap()
	return remote.IsValid() && (remote.IsLoopback() || remote == local)
}

// addrPort returns a TCP address, and the invalid one for any other.
func addrPort(a net.Addr) netip.AddrPort {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.AddrPort{}
	}
	return tcp.AddrPort()
}

// isSocket reports whether conn is the kernel's socket, and not a wrapper around one.
func isSocket(conn net.Conn) bool {
	switch conn.(type) {
	case *net.TCPConn, *net.UnixConn:
		return true
	}
	return false
}

// Abort closes conn with a reset if possible. That discards what was written, and frees the port
// immediately. It is possible on a *net.TCPConn, and on a program's own type that has SetLinger.
func Abort(conn net.Conn) {
	if tcp, ok := conn.(interface{ SetLinger(int) error }); ok {
		tcp.SetLinger(0)
	}
	conn.Close()
}
