package rdmatest

import (
	"errors"
	"testing"

	"github.com/gosdp/gosdp/rdma"
)

var roomChecks = []check{
	{"Idle", checkRoomIdle},
	{"Backpressure", checkBackpressure},
	{"RoomCarries", checkRoomCarries},
	{"FlushCarries", checkFlushCarries},
	{"WakeRoom", checkWakeRoom},
	{"BareWhenBusy", checkBareWhenBusy},
	{"BareIsBounded", checkBareIsBounded},
}

// plenty is more receive buffers than a transport can hold messages.
const plenty = 4096

const bareSize = 16 // of a message without payload

// backlog is what one end has sent to another that did not call Poll.
type backlog struct {
	from, to *end
	taken    uint64          // messages
	buffers  uint64          // that the receiver provides
	bare     map[uint64]bool // which of the messages have no payload
}

// overfill sends until the device is Busy. It skips the test if every buffer of the peer is filled
// before: hardware does not need the peer's program.
func overfill(a, b *end) *backlog {
	a.t.Helper()
	l := &backlog{from: a, to: b, buffers: window}
	if b.Limits().Elastic {
		b.ProvideReceive(plenty, b.size)
		l.buffers = plenty
	}
	l.fill()
	return l
}

// fill posts messages until the device refuses one.
func (l *backlog) fill() {
	l.from.t.Helper()
	for l.fillOne() {
	}
	if l.taken == l.buffers {
		l.from.t.Skipf("missing: a transport that takes fewer messages than the peer has buffers, %d", l.buffers)
	}
}

// fillOne posts a message if the peer has a buffer for it, and reports whether the device accepted it.
func (l *backlog) fillOne() bool {
	t := l.from.t
	t.Helper()
	if l.taken == l.buffers {
		return false
	}
	wr := []rdma.SendWR{message(l.message(l.taken), 16)}
	n, err := l.from.PostSend(wr)
	scribble(wr[:n])
	l.taken += uint64(n)
	if err != nil && !errors.Is(err, rdma.ErrNoRoom) {
		t.Fatal(err)
	}
	return n > 0
}

// stuff is overfill for a device that then stays Busy until the peer calls Poll. A transport may take
// a little more later, for example when a timer makes a kernel fill a small window, but not the Write
// that stuff posts after the messages.
func stuff(a, b *end) *backlog {
	a.t.Helper()
	l := overfill(a, b)
	target := b.expose(most, rdma.RemoteWrite)
	must(a.t, write(a, contents(0, most), target.STag, target.VA))
	return l
}

func (l *backlog) message(k uint64) []byte {
	if l.bare[k] {
		return contents(k, l.from.size)[:bareSize]
	}
	return contents(k, l.from.size)
}

// expect makes the peer receive everything, in order and once.
func (l *backlog) expect() {
	l.to.t.Helper()
	for k := range l.taken {
		l.to.expect(l.message(k))
	}
}

// WaitRoom does not wait if there is room, and Flush does nothing.
func checkRoomIdle(t *testing.T, pair Pair) {
	a, b := connect(t, pair)
	if a.Busy() {
		t.Error("an idle device is Busy")
	}
	a.Flush()
	must(t, a.WaitRoom())
	b.collect()
	a.send(contents(1, 100))
	b.expect(contents(1, 100))
}

// A peer that does not call Poll makes the device Busy: it accepts a prefix of what is posted, and
// loses none of that.
func checkBackpressure(t *testing.T, pair Pair) {
	a, b := connect(t, pair)
	l := stuff(a, b)
	l.bare = make(map[uint64]bool)
	// One at a time: a message that cannot be accepted stops those after it.
	wrs := []rdma.SendWR{
		message(l.message(l.taken)[:bareSize], bareSize),
		message(l.message(l.taken+1), bareSize),
		message(l.message(l.taken + 2)[:bareSize], bareSize),
	}
	n, err := a.PostSend(wrs)
	if err != nil && !errors.Is(err, rdma.ErrNoRoom) {
		t.Fatal(err)
	}
	scribble(wrs[:n])
	if n != 1 {
		t.Fatalf("a Busy device took %d of a bare message, one with payload and a bare one", n)
	}
	l.bare[l.taken] = true
	l.taken++
	b.collect()
	a.Flush()
	l.expect()
	a.send([]byte("behind"))
	b.expect([]byte("behind"))
	if a.Busy() {
		must(t, a.WaitRoom())
	}
}

// WaitRoom carries what was accepted, and returns when there is room again.
func checkRoomCarries(t *testing.T, pair Pair) {
	a, b := connect(t, pair)
	l := overfill(a, b)
	b.collect()
	must(t, a.WaitRoom())
	if a.Busy() {
		t.Error("Busy after WaitRoom")
	}
	l.expect()
}

// Flush carries what was accepted, while no call is in progress at that end.
func checkFlushCarries(t *testing.T, pair Pair) {
	a, b := connect(t, pair)
	l := overfill(a, b)
	a.Flush()
	b.collect()
	l.expect()
}

// WakeRoom ends a WaitRoom that is parked, or otherwise the next one.
func checkWakeRoom(t *testing.T, pair Pair) {
	a, b := connect(t, pair)
	l := stuff(a, b)
	a.WakeRoom()
	must(t, a.WaitRoom())
	for range 3 {
		var err error
		returned := background(func() { err = a.WaitRoom() })
		if !parked(returned) {
			t.Errorf("WaitRoom = %v while Busy", err)
		}
		a.WakeRoom()
		<-returned
		must(t, err)
	}
	b.collect()
	a.Flush()
	l.expect()
}

// A Busy device still accepts messages without payload, and keeps their order.
func checkBareWhenBusy(t *testing.T, pair Pair) {
	a, b := connect(t, pair)
	l := stuff(a, b)
	bare := min(512, l.buffers-l.taken)
	for k := range bare {
		if n, err := a.PostSend([]rdma.SendWR{message(contents(k, 16), 16)}); n != 1 || err != nil {
			t.Fatalf("bare message %d to a Busy device: PostSend = %d, %v", k, n, err)
		}
	}
	a.Flush()
	b.collect()
	l.expect()
	for k := range bare {
		b.expect(contents(k, 16))
	}
}

// A peer that never calls Poll cannot make the device accept an unlimited number of messages without
// payload.
func checkBareIsBounded(t *testing.T, pair Pair) {
	a, b := connect(t, pair)
	if !b.Limits().Elastic {
		t.Skip("missing: Limits.Elastic, without which a device posts fewer receive buffers than this takes")
	}
	overfill(a, b)
	const bound = 1 << 18 // SDP counts credit in 16 bits
	header := make([]byte, 16)
	wrs := make([]rdma.SendWR, 64)
	for taken := 0; taken < bound; {
		for i := range wrs {
			wrs[i] = rdma.SendWR{Header: header}
		}
		n, err := a.PostSend(wrs)
		taken += n
		if errors.Is(err, rdma.ErrNoRoom) {
			must(t, a.Abort())
			return
		}
		must(t, err)
	}
	t.Errorf("a device took %d bare messages that nobody fetches", bound)
}
