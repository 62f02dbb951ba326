package proxy

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
)

// A proxy whose target is itself, directly or because a rule redirects what it dials, would dial
// once more for each connection that it accepts, until no descriptor is left. So it knows the
// addresses of the connections that it dials, and resets a client that is one of them.

// loopError says that a target is the proxy itself.
type loopError struct{ to netip.AddrPort }

func (e *loopError) Error() string {
	return fmt.Sprintf("the proxy's own connection to %v came back to it: target is the proxy itself, or a redirect does not leave out what the proxy dials (-mark)", e.to)
}

// loops has the connections that the proxy dials. The zero value is ready to use.
type loops struct {
	mu sync.Mutex
	// pending are sockets that may not have an address yet. A socket has one when connect has
	// been called, and so before the other end can be accepted.
	pending []*outgoing
	dialled map[netip.AddrPort][]*outgoing // by their own address
}

// An attempt is a Dial and, if it succeeds, its connection. It may try several addresses.
type attempt struct {
	loops   *loops
	looped  atomic.Bool // the proxy has accepted it
	sockets []*outgoing // guarded by loops.mu
}

// outgoing is a socket of an attempt.
type outgoing struct {
	attempt  *attempt
	raw      syscall.RawConn
	from, to netip.AddrPort
}

// control adds a socket that is about to be connected. It has the form of net.Dialer.Control.
func (a *attempt) control(_, address string, raw syscall.RawConn) error {
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return nil // not an address of TCP
	}
	a.loops.mu.Lock()
	defer a.loops.mu.Unlock()
	o := &outgoing{attempt: a, raw: raw, to: bare(to)}
	a.sockets = append(a.sockets, o)
	a.loops.pending = append(a.loops.pending, o)
	return nil
}

// connected forgets the sockets that the Dial has closed. Other programs may get their addresses.
func (a *attempt) connected() {
	l := a.loops
	l.mu.Lock()
	defer l.mu.Unlock()
	l.settleLocked()
	a.sockets = slices.DeleteFunc(a.sockets, func(o *outgoing) bool {
		if o.raw.Control(func(uintptr) {}) == nil {
			return false
		}
		l.forgetLocked(o.from, func(other *outgoing) bool { return other == o })
		return true
	})
}

// end forgets the attempt.
func (a *attempt) end() {
	l := a.loops
	l.mu.Lock()
	defer l.mu.Unlock()
	l.settleLocked()
	mine := func(o *outgoing) bool { return o.attempt == a }
	l.pending = slices.DeleteFunc(l.pending, mine)
	for _, o := range a.sockets {
		l.forgetLocked(o.from, mine)
	}
}

// forgetLocked forgets sockets with an address.
func (l *loops) forgetLocked(from netip.AddrPort, which func(*outgoing) bool) {
	if rest := slices.DeleteFunc(l.dialled[from], which); len(rest) > 0 {
		l.dialled[from] = rest
	} else {
		delete(l.dialled, from)
	}
}

// settleLocked finds out the addresses of sockets that have one by now.
func (l *loops) settleLocked() {
	l.pending = slices.DeleteFunc(l.pending, func(o *outgoing) bool {
		if err := o.raw.Control(func(fd uintptr) { o.from = bare(socketAddress(fd)) }); err != nil {
			return true // it is closed
		}
		if o.from.Port() == 0 {
			return false
		}
		if l.dialled == nil {
			l.dialled = make(map[netip.AddrPort][]*outgoing)
		}
		l.dialled[o.from] = append(l.dialled[o.from], o)
		return true
	})
}

// check returns an error if the client is the proxy itself.
func (l *loops) check(client net.Conn) error {
	from := bare(addrPort(client.RemoteAddr()))
	l.mu.Lock()
	l.settleLocked()
	sockets := slices.Clone(l.dialled[from])
	l.mu.Unlock()
	if len(sockets) == 0 {
		return nil
	}
	// Another program's connection may come from the same address, if it goes elsewhere.
	at := bare(addrPort(client.LocalAddr()))
	meant, err := original(client)
	redirected := err == nil
	for _, o := range sockets {
		here := o.to.Port() == at.Port() && (o.to.Addr() == at.Addr() || o.to.Addr().IsUnspecified())
		if here || redirected && o.to == bare(meant) {
			o.attempt.looped.Store(true)
			return &loopError{o.to}
		}
	}
	return nil
}

// bare returns an address in the form in which addresses are compared.
func bare(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap().WithZone(""), a.Port())
}

// socketAddressOf returns the address of a socket as syscall.Getsockname has it.
func socketAddressOf(a syscall.Sockaddr) netip.AddrPort {
	switch a := a.(type) {
	case *syscall.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(a.Addr), uint16(a.Port))
	case *syscall.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(a.Addr), uint16(a.Port))
	}
	return netip.AddrPort{}
}
