package verbs

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
)

// listeners has one listener for each local address at which a peer has connected. A listener
// belongs to the device that had the address when it was opened. If that device is removed, or
// another one has the address, the listener gets no more requests. It is then dropped, and the next
// call of port opens another.
//
// mu guards byAddress, closed, and the fields of each listener. It is not held during
// open, device and stop, which call into the kernel, so drop never waits for those.
type listeners struct {
	// open listens on an address. It calls lost, from any goroutine and perhaps before it
	// returns, when the listener gets no more requests.
	open func(at netip.Addr, lost func(error)) (opened, error)
	// device returns the device that has the address now.
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
	stop   func() // ends the listener; it may block
}

// listener is an entry of listeners.
type listener struct {
	at    netip.Addr
	ready chan struct{} // closed when open has returned; guards opened and err
	opened
	err  error
	up   bool  // stop must still be called
	lost error // why it was dropped
}

var errMoved = errors.New("verbs: address moved to another RDMA device")

// port returns the port of the listener on an address. It opens one if there is none on the device
// that has the address now.
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
		// The kernel does not report that an address was moved from one device to another.
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

// find returns the listener on an address once it is open. fresh reports that this call opened it.
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
	case l.lost != nil: // while it was being opened
		err = fmt.Errorf("verbs: listener on %v lost: %w", l.at, l.lost)
	default:
		l.up, stop = true, false
	}
	l.opened, l.err = o, err
	if err != nil {
		t.removeLocked(l)
	}
	t.mu.Unlock()
	close(l.ready)
	if stop {
		o.stop()
	}
}

// drop removes a listener that gets no more requests. It does not block: another goroutine stops the
// listener.
func (t *listeners) drop(l *listener, why error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if l.lost == nil {
		l.lost = why
	}
	t.removeLocked(l)
	if l.up {
		l.up = false
		t.workers.Go(l.stop)
	}
}

// removeLocked removes a listener from byAddress, unless another has replaced it there.
func (t *listeners) removeLocked(l *listener) {
	if t.byAddress[l.at] == l {
		delete(t.byAddress, l.at)
	}
}

// close stops every listener, and waits until all are stopped, including dropped ones. The next call
// of port returns net.ErrClosed.
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
