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

// optionalChecks are about the interfaces that a queue pair may implement in addition. They are
// skipped if it does not.
var optionalChecks = []check{
	{"Idle", checkIdle},
	{"Lost", checkLost},
	{"LostConcurrent", checkLostConcurrent},
	{"Finish", checkFinish},
	{"FinishBacklog", checkFinishBacklog},
	{"FinishEnded", checkFinishEnded},
	{"Settle", checkSettle},
}

// optional returns e as I, or skips the test.
func optional[I any](e *end) I {
	e.t.Helper()
	i, ok := e.QueuePair.(I)
	if !ok {
		e.t.Skipf("missing: a device that implements %T", (*I)(nil))
	}
	return i
}

// Shrink takes nothing that is in use: everything that both ends send arrives, although both call
// Shrink all the time.
func checkIdle(t *testing.T, pair Pair) {
	a, b := connect(t, pair)
	x, y := optional[rdma.Shrinker](a), optional[rdma.Shrinker](b)
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
				x.Shrink()
				y.Shrink()
				runtime.Gosched()
			}
		}
	})
	defer func() {
		close(calm)
		<-idling
		must(t, a.Close())
		x.Shrink() // there is nothing to free
	}()
	together(t, ab.send, ba.send, ab.wait, ba.wait)
}

var errGone = errors.New("the peer's host is gone")

// Lost ends every call, now and later, with the reason that it is given.
func checkLost(t *testing.T, pair Pair) {
	a, b := connect(t, pair)
	distant := optional[rdma.PeerLossNotifier](a)
	a.collect()
	b.collect()
	a.send([]byte("before"))
	b.expect([]byte("before"))
	distant.Lost(errGone)
	if err := a.ended(); !errors.Is(err, errGone) {
		t.Errorf("Lost(%v) ended the queue pair with %v", errGone, err)
	}
	if _, err := a.PostSend([]rdma.SendWR{message([]byte("x"), 1)}); !errors.Is(err, errGone) {
		t.Errorf("PostSend after Lost(%v): %v", errGone, err)
	}
	if err := a.WaitRoom(); !errors.Is(err, errGone) {
		t.Errorf("WaitRoom after Lost(%v): %v", errGone, err)
	}
	distant.Lost(errors.New("something else"))
	a.expectSticky()
	must(t, a.Close())
	a.expectSticky()
}

// Lost may run concurrently with traffic, Close and itself; every call returns.
func checkLostConcurrent(t *testing.T, pair Pair) {
	for _, how := range endings {
		a, b := connect(t, pair)
		distant := optional[rdma.PeerLossNotifier](a)
		finish := startStreaming(a, b)
		var ending sync.WaitGroup
		for range 4 {
			ending.Go(func() { distant.Lost(errGone) })
		}
		ending.Go(func() { _ = how.end(a) })
		ending.Wait()
		_ = a.Close()
		finish()
		if err := a.ended(); !errors.Is(err, errGone) && !errors.Is(err, net.ErrClosed) {
			t.Errorf("a ended with %v", err)
		}
		_ = b.ended()
		distant.Lost(errGone)
		a.expectSticky()
	}
}

// finished repeats Finish until it reports that the channel can be closed.
func (e *end) finished(f rdma.Finisher) {
	e.t.Helper()
	for deadline := enough(); ; time.Sleep(time.Millisecond) {
		ended, done := f.Finish()
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

// After Finish has reported true, Close destroys nothing, even if the peer looks for what was sent
// only afterwards.
func checkFinish(t *testing.T, pair Pair) {
	a, b := connect(t, pair)
	finisher := optional[rdma.Finisher](a)
	for k := range uint64(window) {
		a.send(contents(k, 500))
	}
	a.finished(finisher)
	if _, done := finisher.Finish(); !done {
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
	finisher := optional[rdma.Finisher](a)
	target := b.expose(most, rdma.RemoteWrite)
	l := overfill(a, b)
	must(t, write(a, contents(0, most), target.STag, target.VA))
	a.send([]byte("written"))
	for range 3 {
		if _, done := finisher.Finish(); done {
			t.Fatal("Finish reports that it is done, and a Write has not been carried out")
		}
	}
	a.Flush()
	b.collect()
	a.finished(finisher)
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
		finisher := optional[rdma.Finisher](a)
		stuff(a, b)
		a.Flush()
		a.collect()
		_ = how.end(b)
		_ = a.ended()
		a.finished(finisher)
		must(t, a.Close())
		a.finished(finisher)
	}
}

// Settle returns when this process holds nothing any more, or after WakeRoom.
func checkSettle(t *testing.T, pair Pair) {
	a, b := connect(t, pair)
	settler := optional[rdma.Settler](a)
	must(t, settler.Settle()) // there is nothing to wait for
	l := overfill(a, b)
	if settler.Settled() {
		t.Skip("missing: a device that may hold messages and not be Busy")
	}
	for _, end := range []func(){a.WakeRoom, b.collect} {
		var err error
		returned := background(func() { err = settler.Settle() })
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
	if !settler.Settled() {
		t.Error("Settle has returned, and not all has left this process")
	}
	a.Flush()
	l.expect()
	must(t, a.Close())
	_ = settler.Settle() // returns
}
