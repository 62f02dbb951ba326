package verbs

import (
	"errors"
	"net"
	"net/netip"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

var (
	here  = netip.MustParseAddr("192.0.2.1")
	there = netip.MustParseAddr("192.0.2.2")
)

// fabric is the devices of a machine, as listeners sees them. Its listeners have ports in ascending
// order.
type fabric struct {
	t *testing.T
	listeners

	mu      sync.Mutex
	devices map[netip.Addr]string
	lost    []func(error) // of the listeners, in the order in which they were opened
	open    map[uint16]bool
	opening func() // during open
	holding chan struct{}
}

var (
	errNoDevice = errors.New("no RDMA device has the address")
	errGone     = errors.New("the device was removed")
)

func newFabric(t *testing.T) *fabric {
	f := &fabric{t: t, devices: map[netip.Addr]string{here: "first", there: "second"}, open: make(map[uint16]bool)}
	f.listeners.device = func(at netip.Addr) (any, error) {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.devices[at] == "" {
			return nil, errNoDevice
		}
		return f.devices[at], nil
	}
	f.listeners.open = func(at netip.Addr, lost func(error)) (opened, error) {
		device, err := f.listeners.device(at)
		if err != nil {
			return opened{}, err
		}
		f.mu.Lock()
		f.lost = append(f.lost, lost)
		port := uint16(len(f.lost))
		f.open[port] = true
		opening := f.opening
		f.mu.Unlock()
		if opening != nil {
			opening()
		}
		return opened{port: port, device: device, stop: func() { f.stop(port) }}, nil
	}
	return f
}

// stop gives up a listener, once the test lets it.
func (f *fabric) stop(port uint16) {
	if f.holding != nil {
		<-f.holding
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	assert.True(f.t, f.open[port], "listener %d is stopped twice", port)
	delete(f.open, port)
}

// give moves the address to another device, or to none if that is empty.
func (f *fabric) give(at netip.Addr, device string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.devices[at] = device
}

// want checks what port returns for an address.
func (f *fabric) want(at netip.Addr, want uint16) {
	f.t.Helper()
	port, err := f.port(at)
	assert.NoError(f.t, err)
	assert.Equal(f.t, want, port)
}

// finish closes the listeners, and checks that none is left.
func (f *fabric) finish() {
	f.t.Helper()
	within(f.t, closed(f.listeners.close), "close does not return")
	assert.Empty(f.t, f.open, "listeners are left")
	_, err := f.port(here)
	assert.Equal(f.t, net.ErrClosed, err)
}

// TestListenersDeviceReturns: a listener whose device was removed is replaced when a device has the
// address again; until then, port fails. Other listeners stay.
func TestListenersDeviceReturns(t *testing.T) {
	defer goleak.VerifyNone(t)
	f := newFabric(t)
	f.want(here, 1)
	f.want(there, 2)
	f.want(here, 1)

	f.give(here, "")
	f.lost[0](errGone)
	for range 2 {
		_, err := f.port(here)
		assert.Equal(t, errNoDevice, err)
	}
	f.want(there, 2)

	f.give(here, "first") // under the name that it had
	f.want(here, 3)
	f.lost[0](errGone) // again; this is not about the new one
	f.want(here, 3)
	f.finish()
}

// TestListenersAddressMoves: nothing reports that another device has the address now.
func TestListenersAddressMoves(t *testing.T) {
	defer goleak.VerifyNone(t)
	f := newFabric(t)
	f.want(here, 1)
	f.give(here, "second")
	f.want(here, 2)
	f.want(here, 2)
	f.give(here, "")
	_, err := f.port(here)
	assert.Equal(t, errNoDevice, err)
	f.give(here, "second") // its listener is still there
	f.want(here, 2)
	f.finish()
}

// TestListenersLostWhileOpened: a listener that is lost while it is being opened is not kept, and the
// next one is.
func TestListenersLostWhileOpened(t *testing.T) {
	defer goleak.VerifyNone(t)
	f := newFabric(t)
	f.opening = func() { f.lost[len(f.lost)-1](syscall.ENETDOWN) }
	_, err := f.port(here)
	assert.ErrorIs(t, err, syscall.ENETDOWN)
	assert.Empty(t, f.open, "the listener is left open")
	f.opening = nil
	f.want(here, 2)
	f.finish()
}

// TestListenersLossDoesNotBlock: neither the report of a loss nor the next listener waits until the
// lost listener has ended; close does.
func TestListenersLossDoesNotBlock(t *testing.T) {
	defer goleak.VerifyNone(t)
	f := newFabric(t)
	f.holding = make(chan struct{})
	f.want(here, 1)
	within(t, closed(func() { f.lost[0](errGone) }), "the loss waits for the listener's end")
	f.want(here, 2)
	f.lost[1](errGone)
	var let atomic.Bool
	ended := closed(func() {
		f.listeners.close()
		assert.True(t, let.Load(), "close has not waited for listeners that were dropped")
	})
	f.awaitClose()
	let.Store(true)
	close(f.holding)
	within(t, ended, "close does not return")
	f.finish()
}

// awaitClose returns when close has begun.
func (f *fabric) awaitClose() {
	for over := false; !over; runtime.Gosched() {
		f.listeners.mu.Lock()
		over = f.closed
		f.listeners.mu.Unlock()
	}
}

// TestListenersCloseWhileOpened: a listener that is being opened during close is ended, and close
// waits for that.
func TestListenersCloseWhileOpened(t *testing.T) {
	defer goleak.VerifyNone(t)
	f := newFabric(t)
	var ended <-chan struct{}
	f.opening = func() {
		ended = closed(f.listeners.close)
		f.awaitClose()
	}
	_, err := f.port(here)
	assert.Equal(t, net.ErrClosed, err)
	within(t, ended, "close does not return")
	f.finish()
}

// TestListenersShared: concurrent calls share one listener, and also the error if it fails.
func TestListenersShared(t *testing.T) {
	defer goleak.VerifyNone(t)
	f := newFabric(t)
	const callers = 20
	var waiting sync.WaitGroup
	held := make(chan struct{})
	f.opening = func() { <-held }
	var ports [callers]uint16
	for i := range callers {
		waiting.Go(func() {
			var err error
			ports[i], err = f.port(here)
			assert.NoError(t, err)
		})
	}
	close(held)
	within(t, closed(waiting.Wait), "port does not return")
	for _, port := range ports {
		assert.EqualValues(t, 1, port)
	}
	f.finish()
}

// TestListenersUnderLosses: devices come and go while peers are invited.
func TestListenersUnderLosses(t *testing.T) {
	defer goleak.VerifyNone(t)
	f := newFabric(t)
	var working sync.WaitGroup
	var got atomic.Int32
	for range 8 {
		working.Go(func() {
			for range 200 {
				port, err := f.port(here)
				if err != nil {
					continue
				}
				got.Add(1)
				f.mu.Lock()
				lost := f.lost[port-1]
				f.mu.Unlock()
				if port%2 == 0 {
					lost(errGone)
				} else {
					f.give(here, string(rune('a'+port%7)))
				}
			}
		})
	}
	within(t, closed(working.Wait), "port does not return")
	require.NotZero(t, got.Load())
	f.finish()
}
