package rdmatest

import (
	"bytes"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/gosdp/gosdp/rdma"
)

var teardownChecks = append(momentChecks(),
	check{"Idle", checkEndIdle},
	check{"Concurrent", checkEndConcurrent},
	check{"Regions", checkEndRegions},
	check{"Reads", checkEndReads},
	check{"CallsAfterwards", checkCallsAfterwards},
)

// endings are the two ways to end a queue pair.
var endings = []struct {
	name string
	end  func(*end) error
}{
	{"Close", func(e *end) error { return e.Close() }},
	{"Abort", func(e *end) error { return e.Abort() }},
}

// expectClosed checks that e, which was closed or aborted here, has ended with
// net.ErrClosed.
func (e *end) expectClosed() {
	e.t.Helper()
	if err := e.ended(); !errors.Is(err, net.ErrClosed) {
		e.t.Errorf("%s was closed at this end, and ended with %v, want net.ErrClosed", e.name, err)
	}
}

// The end that closes sees net.ErrClosed. The peer of an idle pair sees io.EOF after Close, and a
// failure after Abort.
func checkEndIdle(t *testing.T, pair Pair) {
	for _, how := range endings {
		a, b := connect(t, pair)
		a.collect()
		b.collect()
		must(t, how.end(a))
		a.expectClosed()
		a.expectSticky()
		if how.name == "Close" {
			b.expectEnd(io.EOF)
			b.expectSticky()
		} else {
			b.expectFailure()
		}
	}
}

// moments start something on a pair, and return a function that waits until all of its calls have
// returned.
var moments = []struct {
	name  string
	start func(a, b *end) (finish func())
}{
	{"InWait", startWaiting},
	{"InWaitRoom", startWaitRoom},
	{"Reading", startReading},
	{"Writing", startWriting},
	{"Streaming", startStreaming},
}

// momentChecks are that either end may end the pair in either way at every moment, and every call
// returns.
func momentChecks() []check {
	var checks []check
	for _, m := range moments {
		for _, how := range endings {
			for _, who := range []string{"a", "b"} {
				checks = append(checks, check{m.name + "/" + how.name + "/" + who, func(t *testing.T, pair Pair) {
					a, b := connect(t, pair)
					finish := m.start(a, b)
					closed, other := a, b
					if who == "b" {
						closed, other = b, a
					}
					_ = how.end(closed) // the error may report what was cut off
					finish()
					if closed.pumping {
						closed.expectClosed()
					}
					if other.pumping {
						if err := other.ended(); err == nil || errors.Is(err, net.ErrClosed) {
							t.Errorf("%s, whose peer was closed, ended with %v", other.name, err)
						}
					}
				}})
			}
		}
	}
	return checks
}

func startWaiting(a, b *end) func() {
	a.collect()
	b.collect()
	return func() {}
}

func startWaitRoom(a, b *end) func() {
	overfill(a, b)
	returned := background(func() {
		for a.WaitRoom() == nil {
			// There was room, because b's end of the transport is gone.
			if _, err := a.PostSend([]rdma.SendWR{message(contents(0, a.size), 16)}); err != nil &&
				!errors.Is(err, rdma.ErrNoRoom) {
				return
			}
		}
	})
	return func() { <-returned }
}

func startReading(a, b *end) func() {
	startWaiting(a, b)
	source := b.expose(most, rdma.RemoteRead)
	x := transfers{e: a}
	for range min(4, a.Limits().ORD) {
		if x.read(make([]byte, most), source.STag, source.VA, nil) != nil {
			break
		}
	}
	return func() {}
}

func startWriting(a, b *end) func() {
	startWaiting(a, b)
	target := b.expose(most/16, rdma.RemoteWrite)
	writing := background(func() { writeOn(a, target) })
	b.expect([]byte("going"))
	return func() { <-writing }
}

func startStreaming(a, b *end) func() {
	const endless = 1 << 30
	ab := newFlow(a, b, 1, endless, endless, a.size, window)
	ba := newFlow(b, a, 2, endless, endless, b.size, window)
	pumpFlow(ab)
	pumpFlow(ba)
	x, y := background(func() { _ = ab.send() }), background(func() { _ = ba.send() })
	return func() { <-x; <-y }
}

// Close and Abort may be called by several goroutines at once, and again.
func checkEndConcurrent(t *testing.T, pair Pair) {
	a, b := connect(t, pair)
	finish := startStreaming(a, b)
	var ending sync.WaitGroup
	for i := range 8 {
		ending.Go(func() {
			e := []*end{a, b}[i%2]
			for range 3 {
				_ = endings[i/2%2].end(e)
			}
		})
	}
	ending.Wait()
	finish()
	for _, e := range []*end{a, b} {
		if e.ended() == nil {
			t.Errorf("%s ended without a reason", e.name)
		}
	}
}

// No access has an effect after Close or Abort has returned.
func checkEndRegions(t *testing.T, pair Pair) {
	for _, how := range endings {
		a, b := connect(t, pair)
		startWaiting(a, b)
		target := b.expose(most/16, rdma.RemoteWrite)
		writing := background(func() { writeOn(a, target) })
		b.expect([]byte("going"))
		_ = how.end(b)
		snapshot := bytes.Clone(target.arena)
		<-writing
		b.expectClosed()
		must(t, a.Close())
		checkMemory(t, "memory after "+how.name, target.arena, snapshot)
		checkMargins(t, "memory after "+how.name, target.arena)
	}
}

// Nothing is written to the memory of a Read after Close or Abort has returned: it belongs to the
// caller again.
func checkEndReads(t *testing.T, pair Pair) {
	for _, how := range endings {
		for range rounds {
			a, b := connect(t, pair)
			startWaiting(a, b)
			source := b.expose(most/16, rdma.RemoteRead)
			copy(source.mem, contents(0, len(source.mem)))
			locals := make([][]byte, min(a.Limits().ORD, 4))
			for i := range locals {
				locals[i] = make([]byte, len(source.mem))
			}
			reading := background(func() { readOn(a, source, locals) })
			b.expect([]byte("going"))
			_ = how.end(a)
			for _, local := range locals {
				fill(local, blank)
			}
			<-reading
			_ = b.ended()
			must(t, b.Close())
			for _, local := range locals {
				if n := len(local) - bytes.Count(local, []byte{blank}); n > 0 {
					t.Errorf("%d bytes of a Read's memory have changed after %s", n, how.name)
				}
			}
		}
	}
}

// Calls on a queue pair that is gone return. Those that post, wait or register fail with net.ErrClosed.
func checkCallsAfterwards(t *testing.T, pair Pair) {
	for _, how := range endings {
		a, b := connect(t, pair)
		source := b.expose(100, rdma.RemoteRead|rdma.RemoteWrite)
		before := a.Limits()
		must(t, how.end(a))
		var wcs [4]rdma.Completion
		local := make([]byte, 100)
		for name, call := range map[string]func() error{
			"PostSend":  func() error { _, err := a.PostSend([]rdma.SendWR{message(local, 16)}); return err },
			"PostRead":  func() error { return read(a, local, source.STag, source.VA) },
			"PostWrite": func() error { return write(a, local, source.STag, source.VA) },
			"Poll":      func() error { _, err := a.Poll(wcs[:]); return err },
			"Wait":      func() error { _, err := a.Wait(wcs[:]); return err },
			"WaitRoom":  a.WaitRoom,
			"Register":  func() error { _, err := a.Register(local, rdma.RemoteRead); return err },
		} {
			if err := call(); !errors.Is(err, net.ErrClosed) {
				t.Errorf("%s after %s: %v, want net.ErrClosed", name, how.name, err)
			}
		}
		a.Wake()
		a.WakeRoom()
		a.Flush()
		a.Busy()
		a.ProvideReceive(window, 1000)
		_ = a.Drain(time.Millisecond)
		a.Invalidate(source.STag)
		if after := a.Limits(); after != before {
			t.Errorf("Limits are %+v after %s, were %+v", after, how.name, before)
		}
	}
}
