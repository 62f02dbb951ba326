package iwarp

import (
	"net"
	"net/netip"
	"runtime"
	"sync"
	"weak"

	"golang.org/x/sys/unix"
)

// pair identifies a TCP connection as one of its ends sees it.
type pair struct{ local, remote netip.AddrPort }

// ends has the TCP transports of this process. Two that are the ends of one connection do not poll
// before they park, because they would only take the processor from each other. The weak pointers
// let a transport be collected that was not closed.
var ends = struct {
	mu sync.Mutex
	at map[pair]weak.Pointer[rawTransport]
}{at: make(map[pair]weak.Pointer[rawTransport])}

// join adds the transport to ends, and finds out whether the other end is there too.
func (t *rawTransport) join() {
	switch c := t.conn.(type) {
	case *net.UnixConn:
		t.rc.Control(func(fd uintptr) {
			peer, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
			t.toSelf.Store(err == nil && int(peer.Pid) == unix.Getpid())
		})
	case *net.TCPConn:
		at := pairOf(c)
		runtime.AddCleanup(t, forget, at)
		ends.mu.Lock()
		defer ends.mu.Unlock()
		ends.at[at] = weak.Make(t)
		if other := ends.at[pair{at.remote, at.local}].Value(); other != nil {
			t.toSelf.Store(true)
			other.toSelf.Store(true)
		}
	}
}

// leave removes the transport from ends.
func (t *rawTransport) leave() {
	if c, ok := t.conn.(*net.TCPConn); ok {
		ends.mu.Lock()
		defer ends.mu.Unlock()
		if at := pairOf(c); ends.at[at].Value() == t {
			delete(ends.at, at)
		}
	}
}

// forget removes a transport that was collected.
func forget(at pair) {
	ends.mu.Lock()
	defer ends.mu.Unlock()
	if w, ok := ends.at[at]; ok && w.Value() == nil {
		delete(ends.at, at)
	}
}

func pairOf(c *net.TCPConn) pair { return pair{addrPort(c.LocalAddr()), addrPort(c.RemoteAddr())} }

// addrPort returns the address of an end of a TCP connection, IPv4 always in its short form.
func addrPort(a net.Addr) netip.AddrPort {
	t, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.AddrPort{}
	}
	p := t.AddrPort()
	return netip.AddrPortFrom(p.Addr().Unmap(), p.Port())
}
