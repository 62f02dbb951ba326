package iwarp

import (
	"net"
	"net/netip"
	"runtime"
	"sync"
	"weak"

	"golang.org/x/sys/unix"
)

// pair is a TCP connection as one of its ends names it.
type pair struct{ local, remote netip.AddrPort }

// ends are the TCP transports of this process. Two that are each other's ends do not look
// for bytes before they park: what one takes of the processors the other lacks. One that is
// dropped is collected all the same.
var ends = struct {
	mu sync.Mutex
	at map[pair]weak.Pointer[rawTransport]
}{at: make(map[pair]weak.Pointer[rawTransport])}

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

// leave takes the transport out again.
func (t *rawTransport) leave() {
	if c, ok := t.conn.(*net.TCPConn); ok {
		ends.mu.Lock()
		defer ends.mu.Unlock()
		if at := pairOf(c); ends.at[at].Value() == t {
			delete(ends.at, at)
		}
	}
}

// forget takes out what was collected.
func forget(at pair) {
	ends.mu.Lock()
	defer ends.mu.Unlock()
	if w, ok := ends.at[at]; ok && w.Value() == nil {
		delete(ends.at, at)
	}
}

func pairOf(c *net.TCPConn) pair { return pair{addrPort(c.LocalAddr()), addrPort(c.RemoteAddr())} }

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
