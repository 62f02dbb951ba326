package rdmatest

import (
	"errors"
	"io"
	"net"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/gosdp/gosdp/rdma"
)

// optionalChecks are about the methods for which rdma.Base has a default. What a device does not have,
// by its Limits, does nothing.
var optionalChecks = []check{
	{"Idle", checkIdle},
	{"Lost", checkLost},
	{"LostConcurrent", checkLostConcurrent},
	{"Finish", checkFinish},
	{"FinishBacklog", checkFinishBacklog},
	{"FinishEnded", checkFinishEnded},
	{"Settle", checkSettle},
	{"Width", checkWidth},
	{"BusyPoll", checkBusyPoll},
}

// Shrink takes nothing that is in use: everything that both ends send arrives, although both call
// Shrink all the time.
func checkIdle(t *testing.T, pair Pair) {
	a, b := connect(t, pair)
	seed := newSeed(t)
	ab := newFlow(a, b, seed, repeat(2000), (8<<20)/lighter, a.size, window)
	ba := newFlow(b, a, seed+2, repeat(2000), (8<<20)/lighter, b.size, window)
	pumpFlow(ab)
	pumpFlow(ba)
	calm := make(chan struct{})
	idling := background(func() {
		for {
			select {
			case <-calm:
				return
			default:
				a.Shrink()
				b.Shrink()
				runtime.Gosched()
			}
		}
	})
	defer func() {
		close(calm)
		<-idling
		must(t, a.Close())
		a.Shrink() // there is nothing to free
	}()
	together(t, ab.send, ba.send, ab.wait, ba.wait)
}

var errGone = errors.New("the peer's host is gone")

// Lost ends every call, now and later, with the reason that it is given. A device that needs no
// keepalive ignores it.
func checkLost(t *testing.T, pair Pair) {
	a, b := connect(t, pair)
	a.collect()
	b.collect()
	a.send([]byte("before"))
	b.expect([]byte("before"))
	a.Lost(errGone)
	if !a.Limits().NeedsKeepalive {
		a.send([]byte("after"))
		b.expect([]byte("after"))
		b.send([]byte("back"))
		a.expect([]byte("back"))
		return
	}
	if err := a.ended(); !errors.Is(err, errGone) {
		t.Errorf("Lost(%v) ended the queue pair with %v", errGone, err)
	}
	if _, err := a.PostSend([]rdma.SendWR{message([]byte("x"), 1)}); !errors.Is(err, errGone) {
		t.Errorf("PostSend after Lost(%v): %v", errGone, err)
	}
	if err := a.WaitRoom(); !errors.Is(err, errGone) {
		t.Errorf("WaitRoom after Lost(%v): %v", errGone, err)
	}
	a.Lost(errors.New("something else"))
	a.expectSticky()
	must(t, a.Close())
	a.expectSticky()
}

// Lost may run concurrently with traffic, Close and itself. Every call returns.
func checkLostConcurrent(t *testing.T, pair Pair) {
	for _, how := range endings {
		a, b := connect(t, pair)
		finish := startStreaming(a, b)
		var ending sync.WaitGroup
		for range 4 {
			ending.Go(func() { a.Lost(errGone) })
		}
		ending.Go(func() { _ = how.end(a) })
		ending.Wait()
		_ = a.Close()
		finish()
		if err := a.ended(); !errors.Is(err, errGone) && !errors.Is(err, net.ErrClosed) {
			t.Errorf("a ended with %v", err)
		}
		_ = b.ended()
		a.Lost(errGone)
		a.expectSticky()
	}
}

// finished repeats Finish until it reports that the channel can be closed.
func (e *end) finished() {
	e.t.Helper()
	for deadline := enough(); ; time.Sleep(time.Millisecond) {
		ended, done := e.Finish()
		if done && !ended {
			e.t.Errorf("%s: Finish reports that it is done, and that the sending half has not ended", e.name)
		}
		if done {
			return
		}
		select {
		case <-deadline:
			e.t.Fatalf("%s: Finish never reports that it is done", e.name)
		default:
		}
	}
}

// needsFinish skips a check about Finish if the device does not have it.
func (e *end) needsFinish() {
	e.t.Helper()
	if !e.Limits().Finishes {
		e.t.Skip("missing: a device with Limits.Finishes")
	}
}

// After Finish has reported true, Close destroys nothing, even if the peer looks for what was sent
// only afterwards. A device that cannot report it goes on sending.
func checkFinish(t *testing.T, pair Pair) {
	a, b := connect(t, pair)
	if !a.Limits().Finishes {
		a.collect()
		b.collect()
		if ended, done := a.Finish(); ended || done {
			t.Errorf("Finish = %t, %t, and Limits.Finishes is not set", ended, done)
		}
		a.send([]byte("after"))
		b.expect([]byte("after"))
		return
	}
	for k := range uint64(window) {
		a.send(contents(k, 500))
	}
	a.finished()
	if _, done := a.Finish(); !done {
		t.Error("Finish reports that it is done, and then that it is not")
	}
	must(t, a.Close())
	b.collect()
	for k := range uint64(window) {
		b.expect(contents(k, 500))
	}
	b.expectEnd(io.EOF)
}

// Finish returns false, without waiting, while some of it is in this process.
func checkFinishBacklog(t *testing.T, pair Pair) {
	a, b := connect(t, pair)
	a.needsFinish()
	target := b.expose(most, rdma.RemoteWrite)
	l := overfill(a, b)
	must(t, write(a, contents(0, most), target.STag, target.VA))
	a.send([]byte("written"))
	for range 3 {
		if _, done := a.Finish(); done {
			t.Fatal("Finish reports that it is done, and a Write has not been carried out")
		}
	}
	a.Flush()
	b.collect()
	a.finished()
	must(t, a.Close())
	l.expect()
	b.expect([]byte("written"))
	b.expectEnd(io.EOF)
	checkMemory(t, "the target", target.mem, contents(0, most))
}

// If the channel has ended, there is nothing to wait for.
func checkFinishEnded(t *testing.T, pair Pair) {
	for _, how := range endings {
		a, b := connect(t, pair)
		a.needsFinish()
		stuff(a, b)
		a.Flush()
		a.collect()
		_ = how.end(b)
		_ = a.ended()
		a.finished()
		must(t, a.Close())
		a.finished()
	}
}

// Settle returns when this process holds nothing any more, or after WakeRoom.
func checkSettle(t *testing.T, pair Pair) {
	a, b := connect(t, pair)
	must(t, a.Settle()) // there is nothing to wait for
	l := overfill(a, b)
	if a.Settled() {
		t.Skip("missing: a device that may hold messages and not be Busy")
	}
	for _, end := range []func(){a.WakeRoom, b.collect} {
		var err error
		returned := background(func() { err = a.Settle() })
		if !parked(returned) {
			t.Errorf("Settle = %v before anything has changed", err)
		}
		end()
		select {
		case <-returned:
			must(t, err)
		case <-enough():
			t.Fatal("Settle does not return")
		}
	}
	if !a.Settled() {
		t.Error("Settle has returned, and not all has left this process")
	}
	a.Flush()
	l.expect()
	must(t, a.Close())
	_ = a.Settle() // returns
}

// Width allows messages that are no longer than the caller wants, and such a message arrives.
func checkWidth(t *testing.T, pair Pair) {
	a, b := connect(t, pair)
	a.collect()
	b.collect()
	for n := 1; n <= a.size; n = 3*n + 1 {
		w := a.Width(n)
		if w < 1 || w > n {
			t.Fatalf("Width(%d) = %d", n, w)
		}
		a.send(contents(uint64(n), w))
		b.expect(contents(uint64(n), w))
	}
}

// However long Wait polls, it returns what arrives, and after Wake.
func checkBusyPoll(t *testing.T, pair Pair) {
	for _, d := range []time.Duration{-1, 0, time.Microsecond, 10 * moment} {
		a, b := connect(t, pair)
		a.SetBusyPoll(d)
		b.SetBusyPoll(d)
		a.collect()
		b.collect()
		a.send([]byte("there"))
		b.expect([]byte("there"))
		b.send([]byte("back"))
		a.expect([]byte("back"))
		b.stop()
	}
}
