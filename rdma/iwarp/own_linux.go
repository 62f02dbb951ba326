package iwarp

import (
	"net"
	"net/netip"
	"sync"

	"golang.org/x/sys/unix"
)

// ends are the TCP transports of this process, by their local address. Two that are each
// other's ends do not look for bytes before they park: what one takes of the processors
// the other lacks.
var ends = struct {
	mu sync.Mutex
	at map[netip.AddrPort]*rawTransport
}{at: make(map[netip.AddrPort]*rawTransport)}

// join adds the transport to those of this process, and finds out whether the other end is
// one of them.
func (t *rawTransport) join() {
	switch c := t.conn.(type) {
	case *net.UnixConn:
		t.rc.Control(func(fd uintptr) {
			peer, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
			t.toSelf.Store(err == nil && int(peer.Pid) == unix.Getpid())
		})
	case *net.TCPConn:
		ends.mu.Lock()
		defer ends.mu.Unlock()
		ends.at[addrPort(c.LocalAddr())] = t
		if other := ends.at[addrPort(c.RemoteAddr())]; other != nil {
			t.toSelf.Store(true)
			other.toSelf.Store(true)
		}
	}
}

// leave takes the transport out again.
func (t *rawTransport) leave() {
	if c, ok := t.conn.(*net.TCPConn); ok {
		ends.mu.Lock()
		defer ends.mu.Unlock()
		if at := addrPort(c.LocalAddr()); ends.at[at] == t {
			delete(ends.at, at)
		}
	}
}

// addrPort is the address of an end of a TCP connection, without the form that IPv4 has in
// IPv6.
func addrPort(a net.Addr) netip.AddrPort {
	t, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.AddrPort{}
	}
	p := t.AddrPort()
	return netip.AddrPortFrom(p.Addr().Unmap(), p.Port())
}
