package rdmatest

import (
	"errors"
	"io"
	"os"
	"slices"
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

// A Write is drained like a message.
func checkDrainWrite(t *testing.T, pair Pair) {
	a, b := connect(t, pair)
	b.collect()
	target := b.expose(most, rdma.RemoteWrite)
	must(t, write(a, contents(0, most), target.STag, target.VA))
	must(t, a.Drain(soon))
	must(t, a.Close())
	b.expectEnd(io.EOF)
	checkMemory(t, "the target", target.mem, contents(0, most))
}

// Drain returns in time if a peer fetches nothing. The bytes of a Write are in this process until
// then, although the messages may have left it.
func checkDrainDeadline(t *testing.T, pair Pair) {
	a, b := connect(t, pair)
	target := b.expose(most, rdma.RemoteWrite)
	overfill(a, b).settle()
	must(t, write(a, contents(0, most), target.STag, target.VA))
	const d = 100 * time.Millisecond
	var took []time.Duration
	for len(took) < 5 {
		begin := time.Now()
		err := a.Drain(d)
		took = append(took, time.Since(begin))
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("Drain = %v, want os.ErrDeadlineExceeded", err)
		}
		if slices.Min(took) <= d*3/2 {
			break // Drain works; the machine was slow
		}
	}
	if best := slices.Min(took); best < d*9/10 || best > d*3/2 {
		t.Errorf("Drain(%v) took %v", d, took)
	}
}
