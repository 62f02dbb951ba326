package rdmatest

import (
	"errors"
	"io"
	"os"
	"testing"
	"time"

	"github.com/gosdp/gosdp/rdma"
)

var drainChecks = []check{
	{"Idle", checkDrainIdle},
	{"ReadAfterwards", checkDrainReadAfterwards},
	{"Backlog", checkDrainBacklog},
	{"Write", checkDrainWrite},
	{"Deadline", checkDrainDeadline},
}

// soon is a time for Drain that a check expects not to be used up.
const soon = time.Minute

// If nothing was sent, Drain does not wait.
func checkDrainIdle(t *testing.T, pair Pair) {
	a, b := connect(t, pair)
	must(t, a.Drain(soon))
	must(t, a.Close())
	b.collect()
	b.expectEnd(io.EOF)
	b.expectSticky()
}

// What was drained arrives, even if the peer looks for it only after the sender is gone.
func checkDrainReadAfterwards(t *testing.T, pair Pair) {
	a, b := connect(t, pair)
	for k := range uint64(window) {
		a.send(contents(k, 500))
	}
	must(t, a.Drain(soon))
	must(t, a.Close())
	b.collect()
	for k := range uint64(window) {
		b.expect(contents(k, 500))
	}
	b.expectEnd(io.EOF)
}

// Drain carries what the transport did not accept at once.
func checkDrainBacklog(t *testing.T, pair Pair) {
	a, b := connect(t, pair)
	l := overfill(a, b)
	b.collect()
	must(t, a.Drain(soon))
	must(t, a.Close())
	l.expect()
	b.expectEnd(io.EOF)
}

// A Write is drained like a message, and before the message that follows it.
func checkDrainWrite(t *testing.T, pair Pair) {
	a, b := connect(t, pair)
	b.collect()
	target := b.expose(most, rdma.RemoteWrite)
	must(t, write(a, contents(0, most), target.STag, target.VA))
	a.send([]byte("written"))
	must(t, a.Drain(soon))
	must(t, a.Close())
	b.expect([]byte("written"))
	b.expectEnd(io.EOF)
	checkMemory(t, "the target", target.mem, contents(0, most))
}

// Drain returns at its deadline if a peer fetches nothing, and not before. The bytes of a Write are in
// this process until then, although the messages may have left it.
func checkDrainDeadline(t *testing.T, pair Pair) {
	a, b := connect(t, pair)
	stuff(a, b)
	const d = 50 * time.Millisecond
	begin := time.Now()
	if err := a.Drain(d); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("Drain = %v, want os.ErrDeadlineExceeded", err)
	}
	if took := time.Since(begin); took < d {
		t.Errorf("Drain(%v) returned after %v", d, took)
	}
}
