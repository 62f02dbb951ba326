package rdmatest

import (
	"runtime"
	"testing"

	"github.com/gosdp/gosdp/rdma"
)

var waitChecks = []check{
	{"PollIdle", checkPollIdle},
	{"Parks", checkWaitParks},
	{"OnlyForReason", checkWaitOnlyForReason},
	{"WakeBefore", checkWakeBefore},
	{"WakeRepeated", checkWakeRepeated},
	{"WakeDuring", checkWakeDuring},
	{"WakeSurvivesPoll", checkWakeSurvivesPoll},
	{"WakeSurvivesWork", checkWakeSurvivesWork},
	{"WakeStorm", checkWakeStorm},
}

// Poll finds nothing on an idle pair, and returns.
func checkPollIdle(t *testing.T, pair Pair) {
	a, _ := connect(t, pair)
	var wcs [4]rdma.Completion
	for range 100 {
		if n, err := a.Poll(wcs[:]); n != 0 || err != nil {
			t.Fatalf("Poll = %d, %v on an idle pair", n, err)
		}
	}
}

// waiting is a call of Wait in a goroutine of its own.
type waiting struct {
	returned <-chan struct{}
	wcs      [4]rdma.Completion
	n        int
	err      error
}

func wait(e *end) *waiting {
	w := new(waiting)
	w.returned = background(func() { w.n, w.err = e.Wait(w.wcs[:]) })
	return w
}

// await waits until the call has returned.
func (w *waiting) await(t *testing.T) {
	t.Helper()
	select {
	case <-w.returned:
	case <-enough():
		t.Fatal("Wait does not return")
	}
}

// expectNothing waits for a Wait that only Wake ended.
func (w *waiting) expectNothing(t *testing.T) {
	t.Helper()
	w.await(t)
	if w.n != 0 || w.err != nil {
		t.Fatalf("Wait = %d, %v, want 0, nil", w.n, w.err)
	}
}

// expectParked checks that a Wait does not return by itself.
func (w *waiting) expectParked(t *testing.T) {
	t.Helper()
	if !parked(w.returned) {
		t.Fatalf("Wait = %d, %v with nothing to report", w.n, w.err)
	}
}

// expectMessage waits for a Wait that a message ended.
func (w *waiting) expectMessage(t *testing.T, want []byte) {
	t.Helper()
	w.await(t)
	if w.n != 1 || w.err != nil {
		t.Fatalf("Wait = %d, %v, want 1 message", w.n, w.err)
	}
	checkMemory(t, "the message", w.wcs[0].Buffer.Bytes, want)
	w.wcs[0].Buffer.Release()
}

// Wait returns for a message and not before.
func checkWaitParks(t *testing.T, pair Pair) {
	a, b := connect(t, pair)
	for k := range uint64(3) {
		w := wait(b)
		w.expectParked(t)
		a.send(contents(k, 100))
		w.expectMessage(t, contents(k, 100))
	}
}

// Wait returns nothing only after a Wake: not once in hundreds of messages, Reads and Writes.
func checkWaitOnlyForReason(t *testing.T, pair Pair) {
	a, b := connect(t, pair)
	a.collect()
	region := a.expose(most/16, rdma.RemoteRead|rdma.RemoteWrite)
	local := make([]byte, most/16)
	var wcs [4]rdma.Completion
	for k := range uint64(repeat(500)) {
		a.send(contents(k, 100))
		waitOne(t, b, wcs[:1]).Buffer.Release()
		n := len(local)
		if k%16 > 0 {
			n = 100
		}
		must(t, write(b, local[:n], region.STag, region.VA))
		b.carry()
		waitOne(t, b, wcs[:1])
		must(t, read(b, local[:n], region.STag, region.VA))
		b.carry()
		waitOne(t, b, wcs[:1])
	}
}

// A Wake while no call waits is for the next Wait, once.
func checkWakeBefore(t *testing.T, pair Pair) {
	a, b := connect(t, pair)
	for k := range uint64(3) {
		b.Wake()
		wait(b).expectNothing(t)
		w := wait(b)
		w.expectParked(t)
		a.send(contents(k, 100))
		w.expectMessage(t, contents(k, 100))
	}
}

// Several Wakes without a Wait in between end one Wait or each one, and no more.
func checkWakeRepeated(t *testing.T, pair Pair) {
	a, b := connect(t, pair)
	const times = 3
	for range times {
		b.Wake()
	}
	wait(b).expectNothing(t)
	for range times - 1 {
		w := wait(b)
		if parked(w.returned) {
			b.Wake()
		}
		w.expectNothing(t)
	}
	w := wait(b)
	w.expectParked(t)
	a.send(contents(1, 100))
	w.expectMessage(t, contents(1, 100))
}

// Wake ends a Wait that is parked. None is lost, however soon it comes.
func checkWakeDuring(t *testing.T, pair Pair) {
	_, b := connect(t, pair)
	for range 3 {
		w := wait(b)
		w.expectParked(t)
		b.Wake()
		w.expectNothing(t)
	}
	for i := range repeat(5000) {
		w := wait(b)
		for range i % 4 {
			runtime.Gosched()
		}
		b.Wake()
		w.expectNothing(t)
	}
}

// Wake is for Wait: a Poll in between does not use it up.
func checkWakeSurvivesPoll(t *testing.T, pair Pair) {
	_, b := connect(t, pair)
	var wcs [4]rdma.Completion
	b.Wake()
	if n, err := b.Poll(wcs[:]); n != 0 || err != nil {
		t.Fatalf("Poll = %d, %v on an idle pair", n, err)
	}
	wait(b).expectNothing(t)
}

// A Wake and a message at the same time do not affect each other.
func checkWakeSurvivesWork(t *testing.T, pair Pair) {
	a, b := connect(t, pair)
	var wcs [4]rdma.Completion
	for k := range uint64(repeat(2000)) {
		waking := background(b.Wake)
		a.send(contents(k, 100))
		n := 0
		for n == 0 {
			var err error
			n, err = b.Wait(wcs[:])
			must(t, err)
		}
		checkMemory(t, "the message", wcs[0].Buffer.Bytes, contents(k, 100))
		wcs[0].Buffer.Release()
		<-waking
		b.Wake()
		wait(b).expectNothing(t)
	}
}

// Any number of Wakes during traffic loses none of it.
func checkWakeStorm(t *testing.T, pair Pair) {
	a, b := connect(t, pair)
	seed := newSeed(t)
	ab := newFlow(a, b, seed, repeat(2000), (8<<20)/lighter, a.size, window)
	ba := newFlow(b, a, seed+2, repeat(2000), (8<<20)/lighter, b.size, window)
	pumpFlow(ab)
	pumpFlow(ba)
	calm := make(chan struct{})
	storm := background(func() {
		for {
			select {
			case <-calm:
				return
			default:
				for _, e := range []*end{a, b} {
					e.Wake()
					e.WakeRoom()
				}
				runtime.Gosched()
			}
		}
	})
	defer func() {
		close(calm)
		<-storm
	}()
	together(t, ab.send, ba.send, ab.wait, ba.wait)
}
