package rdmatest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gosdp/gosdp/rdma"
)

const (
	window  = 64       // receive buffers that connect provides at each end
	segment = 64 << 10 // bytes in each, or MaxMessage if that is less
	largest = 1 << 20  // bytes in each, for checks that want large ones

	// moment is long enough to notice that a call which should be parked is not. Nothing passes
	// because of it: a check that looks too early only fails to notice.
	moment = 20 * time.Millisecond
)

// end is one end of the pair under test. A test either calls Wait itself or lets a pump do so.
type end struct {
	rdma.QueuePair
	t    *testing.T
	name string
	size int // of the receive buffers that connect provided here and at the peer

	messages chan rdma.Completion // what a collecting pump received
	work     chan rdma.Completion // the Reads and Writes that it saw completed

	stopping atomic.Bool
	pumping  bool
	done     chan struct{} // closed when the pump has left
	err      error         // why it left; nil after stop. Valid once done is closed
}

// connect makes a pair with receive buffers at both ends. The pair is closed when the subtest is over.
func connect(t *testing.T, pair Pair) (a, b *end) {
	t.Helper()
	return connectSized(t, pair, segment)
}

// connectSized is like connect, with receive buffers of another size.
func connectSized(t *testing.T, pair Pair, size int) (a, b *end) {
	t.Helper()
	x, y := pair(t)
	size = min(size, x.Limits().MaxMessage, y.Limits().MaxMessage)
	a, b = newEnd(t, "a", x, size), newEnd(t, "b", y, size)
	for _, e := range []*end{a, b} {
		e.open()
	}
	return a, b
}

// open provides receive buffers. The end is closed when the subtest is over.
func (e *end) open() {
	e.ProvideReceive(window, e.size)
	e.t.Cleanup(func() {
		e.Close()
		if e.pumping {
			<-e.done
		}
	})
}

func newEnd(t *testing.T, name string, q rdma.QueuePair, size int) *end {
	return &end{
		QueuePair: q,
		t:         t,
		name:      name,
		size:      size,
		messages:  make(chan rdma.Completion, 4096),
		work:      make(chan rdma.Completion, 4096),
		done:      make(chan struct{}),
	}
}

// pump starts a goroutine that calls Wait and handles each completion, until the queue pair ends or
// stop is called.
func (e *end) pump(handle func(rdma.Completion)) {
	e.pumping = true
	go func() {
		defer close(e.done)
		var wcs [16]rdma.Completion
		for i := 0; !e.stopping.Load(); i++ {
			n, err := e.Wait(wcs[:1+i%len(wcs)]) // every size of batch
			if err != nil {
				if n != 0 {
					e.t.Errorf("%s: Wait returned %d completions together with %v", e.name, n, err)
				}
				e.err = err
				return
			}
			for _, c := range wcs[:n] {
				handle(c)
			}
		}
	}()
}

// collect starts a pump that keeps everything for expect, take and transfers.
func (e *end) collect() {
	e.pump(func(c rdma.Completion) {
		if c.Op == rdma.OpReceive {
			e.messages <- c
		} else {
			e.work <- c
		}
	})
}

// stop makes the pump leave a queue pair that continues.
func (e *end) stop() {
	e.stopping.Store(true)
	e.Wake()
	<-e.done
}

// ended waits for the queue pair's end and returns the reason.
func (e *end) ended() error {
	e.t.Helper()
	select {
	case <-e.done:
	case <-enough():
		e.t.Fatalf("%s goes on", e.name)
	}
	return e.err
}

// take returns the next completion that a collecting pump receives.
func (e *end) take(from chan rdma.Completion) (rdma.Completion, error) {
	select {
	case c := <-from:
		return c, nil
	case <-e.done:
	case <-enough():
		return rdma.Completion{}, fmt.Errorf("%s: nothing comes", e.name)
	}
	select { // what came before the end
	case c := <-from:
		return c, nil
	default:
		return rdma.Completion{}, fmt.Errorf("%s ended: %w", e.name, e.err)
	}
}

// expect takes the next message, which must be want, and releases it.
func (e *end) expect(want []byte) rdma.Completion {
	e.t.Helper()
	c := e.hold(want)
	c.Buffer.Release()
	return c
}

// hold takes the next message, which must be want, and keeps it.
func (e *end) hold(want []byte) rdma.Completion {
	e.t.Helper()
	c, err := e.take(e.messages)
	must(e.t, err)
	if !bytes.Equal(c.Buffer.Bytes, want) {
		e.t.Fatalf("%s: received %s, want %s", e.name, brief(c.Buffer.Bytes), brief(want))
	}
	return c
}

// expectEnd waits for the end of e, which must leave no message behind and have
// the reason want.
func (e *end) expectEnd(want error) {
	e.t.Helper()
	if c, err := e.take(e.messages); err == nil {
		e.t.Fatalf("%s: received %s, want the end", e.name, brief(c.Buffer.Bytes))
	}
	if e.err != want {
		e.t.Errorf("%s ended with %v, want %v", e.name, e.err, want)
	}
}

// expectFailure waits for the end of e, which must not look as if the peer had closed in good order.
func (e *end) expectFailure() {
	e.t.Helper()
	if err := e.ended(); err == nil || errors.Is(err, io.EOF) {
		e.t.Errorf("%s ended with %v, want a failure", e.name, err)
	}
	e.expectSticky()
}

// expectSticky checks that Poll and Wait keep returning the reason that ended the pump.
func (e *end) expectSticky() {
	e.t.Helper()
	var wcs [4]rdma.Completion
	for range 3 {
		for name, call := range map[string]func([]rdma.Completion) (int, error){"Poll": e.Poll, "Wait": e.Wait} {
			if n, err := call(wcs[:]); n != 0 || err != e.err {
				e.t.Errorf("%s: %s returned %d, %v; want 0, and still %v", e.name, name, n, err, e.err)
			}
		}
	}
}

// post posts every message, waits for room as often as necessary, and overwrites what was accepted,
// which the device must not use any more.
func (e *end) post(wrs ...rdma.SendWR) error {
	for {
		n, err := e.PostSend(wrs)
		if n < 0 || n > len(wrs) {
			return fmt.Errorf("%s: PostSend of %d messages took %d", e.name, len(wrs), n)
		}
		scribble(wrs[:n])
		wrs = wrs[n:]
		if err != nil && !errors.Is(err, rdma.ErrNoRoom) {
			return fmt.Errorf("%s: PostSend: %w", e.name, err)
		}
		if len(wrs) == 0 {
			break
		}
		if err := e.WaitRoom(); err != nil {
			return fmt.Errorf("%s: WaitRoom: %w", e.name, err)
		}
	}
	e.carry()
	return nil
}

// carry does what a caller that posts, and does not go to WaitRoom, owes the device.
func (e *end) carry() {
	if e.Busy() {
		e.Flush()
	}
}

// send sends one message.
func (e *end) send(msg []byte) {
	e.t.Helper()
	must(e.t, e.post(message(msg, 16)))
}

// message makes a work request of a copy of msg, split after header bytes.
func message(msg []byte, header int) rdma.SendWR {
	msg = bytes.Clone(msg)
	header = min(header, len(msg))
	wr := rdma.SendWR{Header: msg[:header:header]}
	if header < len(msg) {
		wr.Payload = msg[header:]
	}
	return wr
}

func scribble(wrs []rdma.SendWR) {
	for i, wr := range wrs {
		wipe(wr.Header)
		wipe(wr.Payload)
		wrs[i] = rdma.SendWR{}
	}
}

// wipe overwrites b.
func wipe(b []byte) {
	for len(b) > 0 {
		b = b[copy(b, scribbles):]
	}
}

var scribbles = bytes.Repeat([]byte{0xDB}, 4096)

// together runs the functions concurrently and waits for all of them.
func together(t *testing.T, fns ...func() error) {
	t.Helper()
	var wg sync.WaitGroup
	errs := make([]error, len(fns))
	for i, fn := range fns {
		wg.Go(func() { errs[i] = fn() })
	}
	wg.Wait()
	must(t, errors.Join(errs...))
}

// background runs a call and closes the channel when it has returned.
func background(call func()) <-chan struct{} {
	returned := make(chan struct{})
	go func() {
		defer close(returned)
		call()
	}()
	return returned
}

// parked reports whether the call behind the channel has not returned for a moment.
func parked(returned <-chan struct{}) bool {
	select {
	case <-returned:
		return false
	case <-time.After(moment):
		return true
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// brief describes a message that may be long.
func brief(b []byte) string {
	return fmt.Sprintf("%d bytes %x…", len(b), b[:min(len(b), 16)])
}
