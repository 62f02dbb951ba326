package verbs

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
)

// listeners has one listener for each local address at which a peer has met us. A
// listener belongs to the device that had the address when it was opened. When that
// device is removed, or another one has the address, the listener hears nothing any
// more: it is dropped, and the next call of port opens another.
//
// mu guards byAddress, closed, and the fields of each listener. It is not held during
// open, device and stop, which call into the kernel, so drop never waits for those.
type listeners struct {
	// open listens on an address. It calls lost, from any goroutine and perhaps
	// before it returns, when the listener hears nothing any more.
	open func(at netip.Addr, lost func(error)) (opened, error)
	// device returns what has the address now.
	device func(at netip.Addr) (any, error)

	mu        sync.Mutex
	byAddress map[netip.Addr]*listener
	closed    bool
	workers   sync.WaitGroup // calls of port, and stops of dropped listeners
}

// opened is a listener as open returns it.
type opened struct {
	port   uint16
	device any    // comparable
	stop   func() // gives the listener up; it may block
}

// listener is an entry of listeners.
type listener struct {
	at    netip.Addr
	ready chan struct{} // closed when open has returned; guards opened and err
	opened
	err  error
	up   bool  // stop is still to be called
	lost error // why it was dropped
}

var errMoved = errors.New("verbs: another RDMA device has the address now")

// port returns the port of the listener on an address, which it opens if there is
// none on the device that has the address now.
func (t *listeners) port(at netip.Addr) (uint16, error) {
	t.mu.Lock()
	if t.closed {
		t.mu.Unlock()
		return 0, net.ErrClosed
	}
	t.workers.Add(1)
	t.mu.Unlock()
	defer t.workers.Done()
	for range 2 {
		l, fresh, err := t.find(at)
		if err != nil {
			return 0, err
		}
		if fresh {
			return l.port, nil
		}
		// The kernel does not tell of an address that is moved from one device to
		// another.
		device, err := t.device(at)
		if err != nil {
			return 0, err
		}
		if device == l.device {
			return l.port, nil
		}
		t.drop(l, errMoved)
	}
	return 0, errMoved
}

// find returns the listener on an address once it is open. fresh reports that this
// call has opened it.
func (t *listeners) find(at netip.Addr) (l *listener, fresh bool, err error) {
	t.mu.Lock()
	if t.closed {
		t.mu.Unlock()
		return nil, false, net.ErrClosed
	}
	l = t.byAddress[at]
	if fresh = l == nil; fresh {
		l = &listener{at: at, ready: make(chan struct{})}
		if t.byAddress == nil {
			t.byAddress = make(map[netip.Addr]*listener)
		}
		t.byAddress[at] = l
		t.mu.Unlock()
		t.bringUp(l)
	} else {
		t.mu.Unlock()
		<-l.ready
	}
	return l, fresh, l.err
}

// bringUp opens a listener that is in byAddress.
func (t *listeners) bringUp(l *listener) {
	o, err := t.open(l.at, func(why error) { t.drop(l, why) })
	stop := err == nil
	t.mu.Lock()
	switch {
	case err != nil:
	case t.closed:
		err = net.ErrClosed
	case l.lost != nil: // while it was opened
		err = fmt.Errorf("verbs: the listener on %v was lost: %w", l.at, l.lost)
	default:
		l.up, stop = true, false
	}
	l.opened, l.err = o, err
	if err != nil {
		t.remove(l)
	}
	t.mu.Unlock()
	close(l.ready)
	if stop {
		o.stop()
	}
}

// drop takes out a listener that hears nothing any more. It does not block: another
// goroutine stops the listener.
func (t *listeners) drop(l *listener, why error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if l.lost == nil {
		l.lost = why
	}
	t.remove(l)
	if l.up {
		l.up = false
		t.workers.Go(l.stop)
	}
}

// remove takes a listener out of byAddress, where another may have its place. The
// caller must hold mu.
func (t *listeners) remove(l *listener) {
	if t.byAddress[l.at] == l {
		delete(t.byAddress, l.at)
	}
}

// close stops every listener, and waits until all are stopped, those included that
// were dropped. The next call of port returns net.ErrClosed.
func (t *listeners) close() {
	t.mu.Lock()
	var left []*listener
	for _, l := range t.byAddress {
		if l.up {
			l.up = false
			left = append(left, l)
		}
	}
	t.byAddress, t.closed = nil, true
	t.mu.Unlock()
	for _, l := range left {
		l.stop()
	}
	t.workers.Wait()
}
