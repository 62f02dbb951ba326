package rdmatest

import (
	"errors"
	"testing"

	"github.com/gosdp/gosdp/rdma"
)

var violationChecks = []check{
	{"TooMany", checkTooMany},
	{"TooManyUnread", checkTooManyUnread},
	{"TooLong", checkTooLong},
	{"OthersGoOn", checkOthersGoOn},
}

// expectViolation waits until both ends have ended: the victim with what the offender did, the offender
// with any failure.
func expectViolation(victim, offender *end) {
	victim.t.Helper()
	victim.expectViolated()
	offender.expectFailure()
}

// expectViolated waits until the end has ended because of what the peer did.
func (e *end) expectViolated() {
	e.t.Helper()
	err := e.ended()
	if violation := (*rdma.ProtocolError)(nil); !errors.As(err, &violation) {
		e.t.Errorf("%s ended with %v, want a *rdma.ProtocolError", e.name, err)
	} else if violation.Rule == "" || violation.What == "" {
		e.t.Errorf("%s: %#v does not say what the peer did", e.name, violation)
	}
	e.expectSticky()
	if _, err := e.PostSend([]rdma.SendWR{message([]byte("x"), 1)}); err == nil {
		e.t.Errorf("%s: PostSend succeeds after %v", e.name, e.err)
	}
}

// One message more than there are buffers ends the receiver, after those that had one.
func checkTooMany(t *testing.T, pair Pair) {
	a, b := connect(t, pair)
	a.collect()
	b.collect()
	overrun(a)
	expectOverrun(b, a)
}

// The same if everything is there before the receiver looks.
func checkTooManyUnread(t *testing.T, pair Pair) {
	a, b := connect(t, pair)
	overrun(a)
	a.collect()
	b.collect()
	expectOverrun(b, a)
}

// overrun sends one message more than the peer has buffers.
func overrun(a *end) {
	a.t.Helper()
	for i := range uint64(window + 1) {
		a.send(contents(i, 100))
	}
}

func expectOverrun(victim, offender *end) {
	victim.t.Helper()
	for i := range uint64(window) {
		victim.hold(contents(i, 100))
	}
	expectViolation(victim, offender)
}

// A message of a buffer's length fits, and one that is a byte longer ends the receiver.
func checkTooLong(t *testing.T, pair Pair) {
	for _, size := range []int{37, 4096, segment - 1} {
		a, b := connect(t, pair)
		if size >= b.size {
			t.Skipf("missing: a device for messages of %d bytes", size+1)
		}
		a.collect()
		b.collect()
		for range resize(b, window, size) { // buffers of another size are filled first
			a.send(contents(0, 1))
			b.expect(contents(0, 1))
		}
		a.send(contents(1, size))
		a.send(contents(2, size+1))
		b.expect(contents(1, size))
		expectViolation(b, a)
	}
}

// A violation on one pair does not affect another.
func checkOthersGoOn(t *testing.T, pair Pair) {
	a, b := connect(t, pair)
	c, d := connect(t, pair)
	for _, e := range []*end{a, b, d} {
		e.collect()
	}
	c.send(contents(1, 100))
	overrun(a)
	expectOverrun(b, a)
	c.send(contents(2, 100))
	d.expect(contents(1, 100))
	d.expect(contents(2, 100))
}
