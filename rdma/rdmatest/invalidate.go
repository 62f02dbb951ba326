package rdmatest

import (
	"bytes"
	"testing"

	"github.com/gosdp/gosdp/rdma"
)

var invalidateChecks = []check{
	{"WhileWritten", checkInvalidateWhileWritten},
	{"WhileRead", checkInvalidateWhileRead},
	{"WhileRegistering", checkInvalidateWhileRegistering},
	{"ByPeer", checkInvalidateByPeer},
	{"ByPeerForeign", checkInvalidateForeign},
	{"ByPeerTwice", checkInvalidateTwice},
	{"Again", checkInvalidateAgain},
}

// rounds is how often a check tries to hit the moment between two segments.
const rounds = 4

// No Write has an effect after Invalidate has returned, although the peer continues.
func checkInvalidateWhileWritten(t *testing.T, pair Pair) {
	for range rounds {
		a, b := connect(t, pair)
		a.collect()
		b.collect()
		target := b.expose(most/16, rdma.RemoteWrite)
		writing := background(func() { writeOn(a, target) })
		b.expect([]byte("going")) // or fails, and then the pair is closed
		b.Invalidate(target.STag)
		snapshot := bytes.Clone(target.arena)
		expectViolation(b, a)
		<-writing
		checkMemory(t, "invalidated memory", target.arena, snapshot)
		checkMargins(t, "invalidated memory", target.arena)
	}
}

// writeOn writes to the target until the queue pair ends, and signals when it is well under way.
func writeOn(e *end, target exposed) {
	x := transfers{e: e}
	for k := uint64(0); ; k++ {
		for len(x.writes) == 8 {
			if x.reap() != nil {
				return
			}
		}
		if x.write(contents(k, len(target.mem)), target.STag, target.VA, nil) != nil {
			return
		}
		if k == 3 && e.post(message([]byte("going"), 16)) != nil {
			return
		}
	}
}

// No Read fetches what is written after Invalidate has returned.
func checkInvalidateWhileRead(t *testing.T, pair Pair) {
	for range rounds {
		a, b := connect(t, pair)
		a.collect()
		b.collect()
		source := b.expose(most/16, rdma.RemoteRead)
		before := contents(0, len(source.mem))
		copy(source.mem, before)
		locals := make([][]byte, min(a.Limits().ORD, 4))
		for i := range locals {
			locals[i] = bytes.Clone(before)
		}
		reading := background(func() { readOn(a, source, locals) })
		b.expect([]byte("going"))
		b.Invalidate(source.STag)
		for i := range source.mem {
			source.mem[i] = ^before[i]
		}
		if err := b.ended(); err == nil {
			t.Error("b goes on")
		}
		a.expectFailure()
		<-reading
		for _, local := range locals {
			checkMemory(t, "a Read's target", local, before)
		}
	}
}

// readOn reads the source into each of locals in turn until the queue pair ends.
func readOn(e *end, source exposed, locals [][]byte) {
	x := transfers{e: e}
	for k := 0; ; k++ {
		for len(x.reads) == len(locals) {
			if x.reap() != nil {
				return
			}
		}
		if x.read(locals[k%len(locals)], source.STag, source.VA, nil) != nil {
			return
		}
		if k == 2*len(locals) && e.post(message([]byte("going"), 16)) != nil {
			return
		}
	}
}

// Send with Invalidate revokes a region in order with what the peer did before, and the completion
// names it.
func checkInvalidateByPeer(t *testing.T, pair Pair) {
	for _, solicited := range []bool{false, true} {
		a, b := connect(t, pair)
		a.collect()
		b.collect()
		x := transfers{e: a}
		target := b.expose(100_000, rdma.RemoteWrite)
		kept := b.expose(100, rdma.RemoteWrite)
		must(t, x.write(contents(0, 100_000), target.STag, target.VA, nil))
		wr := message(contents(0, 500), 16)
		wr.Solicited, wr.Invalidate = solicited, target.STag
		must(t, a.post(wr))
		if c := b.expect(contents(0, 500)); c.Invalidated != target.STag {
			t.Errorf("completion reports STag %#x invalidated, want %#x", c.Invalidated, target.STag)
		}
		checkMemory(t, "memory written before", target.mem, contents(0, 100_000))

		must(t, x.write(contents(1, 100), kept.STag, kept.VA, nil))
		a.send([]byte("written"))
		if c := b.expect([]byte("written")); c.Invalidated != 0 {
			t.Errorf("completion reports STag %#x invalidated, want none", c.Invalidated)
		}
		checkMemory(t, "another region", kept.mem, contents(1, 100))

		b.Invalidate(target.STag) // harmless now
		must(t, x.write(contents(1, 100), target.STag, target.VA, nil))
		expectViolation(b, a)
		checkMemory(t, "revoked memory", target.mem, contents(0, 100_000))
	}
}

// A peer may not revoke what was never exposed to it,
func checkInvalidateForeign(t *testing.T, pair Pair) {
	a, b := connect(t, pair)
	_, other := connect(t, pair)
	checkForeign(a, b, other.expose(100, rdma.RemoteWrite).STag)
}

// nor what was revoked before.
func checkInvalidateTwice(t *testing.T, pair Pair) {
	a, b := connect(t, pair)
	target := b.expose(100, rdma.RemoteWrite)
	b.Invalidate(target.STag)
	checkForeign(a, b, target.STag)
}

func checkForeign(a, b *end, s rdma.STag) {
	a.t.Helper()
	a.collect()
	b.collect()
	a.send([]byte("before"))
	wr := message([]byte("revoke"), 16)
	wr.Invalidate = s
	must(a.t, a.post(wr))
	b.expect([]byte("before"))
	expectViolation(b, a)
}

// Invalidate does nothing for a region that has ended or never existed, and when the queue pair is
// gone.
func checkInvalidateAgain(t *testing.T, pair Pair) {
	a, b := connect(t, pair)
	b.collect()
	target := b.expose(100, rdma.RemoteRead)
	other := b.expose(100, rdma.RemoteRead)
	for range 3 {
		b.Invalidate(target.STag)
		b.Invalidate(target.STag ^ 0x5A5A5A5A)
		b.Invalidate(0)
	}
	a.send([]byte("still here"))
	b.expect([]byte("still here"))
	must(t, b.Close())
	b.Invalidate(other.STag)
}
