package rdmatest

import (
	"bytes"
	"fmt"
	"math/rand/v2"

	"github.com/gosdp/gosdp/rdma"
)

// flow is a scripted stream of messages in one direction, within the receiver's buffers. One
// goroutine is in send; the pump of the receiving end calls receive.
type flow struct {
	from, to *end
	script   script
	splits   *rand.Rand // how the sender cuts messages, which the receiver cannot see

	credit chan struct{} // has an element for each buffer of the receiver that is in use

	// dispose is what receive does with a message: f.release, unless a check wants to keep it for
	// a while.
	dispose func(rdma.Buffer)
	// aside, if not nil, runs before each post in the sender's goroutine.
	aside func() error

	arriving script
	want     []byte
	failed   bool
	received chan struct{} // closed when everything has arrived
}

// newFlow makes a flow of count messages, or of as many as bytes allow, with up to max bytes each, to
// an end with this number of receive buffers.
func newFlow(from, to *end, seed uint64, count, bytes, max, buffers int) *flow {
	plan := func() script {
		return script{rng: newRand(seed), count: count, bytes: bytes, max: max}
	}
	f := &flow{
		from:     from,
		to:       to,
		script:   plan(),
		splits:   newRand(seed + 1),
		credit:   make(chan struct{}, buffers),
		arriving: plan(),
		received: make(chan struct{}),
	}
	f.dispose = f.release
	f.want = f.arriving.next()
	return f
}

// send sends the whole script.
func (f *flow) send() error {
	most := min(2*f.from.Limits().SendBatch, cap(f.credit))
	wrs := make([]rdma.SendWR, 0, most)
	for next := f.script.next(); next != nil; {
		wrs = wrs[:0]
		for k := 1 + f.splits.IntN(most); next != nil && k > 0; k-- {
			if err := f.acquire(); err != nil {
				return err
			}
			wr := message(next, 1+f.splits.IntN(64))
			wr.Solicited = f.splits.IntN(2) == 0
			wrs = append(wrs, wr)
			next = f.script.next()
		}
		if f.aside != nil {
			if err := f.aside(); err != nil {
				return err
			}
		}
		if err := f.from.post(wrs...); err != nil {
			return err
		}
	}
	return nil
}

// acquire waits for a buffer at the receiver.
func (f *flow) acquire() error {
	select {
	case f.credit <- struct{}{}:
		return nil
	case <-f.to.done:
		return fmt.Errorf("%s ended: %w", f.to.name, f.to.err)
	}
}

// receive checks one message.
func (f *flow) receive(c rdma.Completion) {
	switch got := c.Buffer.Bytes; {
	case f.failed: // after the first difference, others say nothing new
	case f.want == nil:
		f.fail("received %s after the last message", brief(got))
	case !bytes.Equal(got, f.want):
		f.fail("message %d: received %s, want %s", f.arriving.seq-1, brief(got), brief(f.want))
	case c.Invalidated != 0:
		f.fail("message %d: reports STag %#x invalidated", f.arriving.seq-1, c.Invalidated)
	}
	if f.want != nil {
		if f.want = f.arriving.next(); f.want == nil {
			close(f.received)
		}
	}
	f.dispose(c.Buffer)
}

func (f *flow) fail(format string, args ...any) {
	f.failed = true
	f.to.t.Errorf(f.to.name+": "+format, args...)
}

// release releases a buffer, and returns its credit to the sender.
func (f *flow) release(b rdma.Buffer) {
	b.Release()
	<-f.credit
}

// wait waits until everything has arrived.
func (f *flow) wait() error {
	select {
	case <-f.received:
		return nil
	case <-f.to.done:
	}
	select {
	case <-f.received: // and then the end
		return nil
	default:
		return fmt.Errorf("%s ended in mid-stream: %w", f.to.name, f.to.err)
	}
}

// pumpFlow starts the pump of an end that only receives messages.
func pumpFlow(f *flow) { f.to.pump(f.receive) }
