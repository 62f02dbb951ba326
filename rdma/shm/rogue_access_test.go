//go:build linux

package shm

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/rdma"
)

// TestRogueAccess: nothing is moved if a peer accesses more of a region than it was granted.
func TestRogueAccess(t *testing.T) {
	defer leavesNothing(t)()
	const size = 100
	huge := ^uint64(0)
	for _, v := range []struct {
		name   string
		access rdma.Access // of the region
		kind   int
		va, n  uint64
		error  string
	}{
		{"a Write past the end", rdma.RemoteWrite, recordWrite, size - 9, 10, "is past the 100 bytes"},
		{"a Write of more than there is", rdma.RemoteWrite, recordWrite, 0, size + 1, "is past the 100 bytes"},
		{"a Write after the end", rdma.RemoteWrite, recordWrite, size + 1, 1, "is past the 100 bytes"},
		{"a Write in front of the beginning", rdma.RemoteWrite, recordWrite, huge - 7, 16, "wraps around"},
		{"a Write of nearly all that can be counted", rdma.RemoteWrite, recordWrite, 8, huge - 7, "wraps around"},
		{"a Write to what may be read", rdma.RemoteRead, recordWrite, 0, 1, "does not allow"},
		{"a Read past the end", rdma.RemoteRead, recordRead, size - 9, 10, "is past the 100 bytes"},
		{"a Read in front of the beginning", rdma.RemoteRead, recordRead, huge - 7, 16, "wraps around"},
		{"a Read of what may be written", rdma.RemoteWrite, recordRead, 0, 1, "does not allow"},
	} {
		t.Run(v.name, func(t *testing.T) {
			q, r := meetRogue(t)
			arena := make([]byte, 3*size)
			region, err := q.Register(arena[size:2*size], v.access)
			require.NoError(t, err)
			source := bytes.Repeat([]byte{1}, 4*size)
			if v.kind == recordWrite {
				r.says(v.kind, writeLen, words(uint64(region.STag), v.va, v.n, addressOf(source)))
			} else {
				r.says(v.kind, readLen, words(1<<32, uint64(region.STag), v.va, v.n))
			}
			err = ends(t, q)
			var violation *rdma.ProtocolError
			require.ErrorAs(t, err, &violation)
			assert.ErrorContains(t, err, v.error)
			assert.Zero(t, r.a.ctl.ways[1].granted[0].Load(), "the Read is not granted")
			assert.Equal(t, make([]byte, 3*size), arena)
		})
	}
}

// TestRogueEndsReads: a peer that ends Reads which it has not begun, or has ended, violates a rule.
func TestRogueEndsReads(t *testing.T) {
	defer leavesNothing(t)()
	for name, ended := range map[string][]uint64{
		"of another number": {2 << 32},
		"in another slot":   {1<<32 | 1},
		"twice":             {1 << 32, 1 << 32},
	} {
		t.Run(name, func(t *testing.T) {
			q, r := meetRogue(t)
			region, err := q.Register(make([]byte, 100), rdma.RemoteRead)
			require.NoError(t, err)
			r.says(recordRead, readLen, words(1<<32, uint64(region.STag), 0, 100))
			for _, w := range ended {
				r.says(recordRefetched, refetchLen, words(w))
			}
			assert.ErrorContains(t, ends(t, q), "which has not begun")
		})
	}
}

// TestRogueHeadInARecord: so does a peer that says it has taken a part of a record.
func TestRogueHeadInARecord(t *testing.T) {
	q, r := meetRogue(t)
	n, err := q.PostSend([]rdma.SendWR{{Header: make([]byte, 64)}})
	require.NoError(t, err)
	require.Equal(t, 1, n)
	r.a.ctl.ways[0].head.Store(q.tx.ring.pos - 4)
	var violation *rdma.ProtocolError
	for range 20 { // until this end looks at the word
		if _, err = q.PostSend([]rdma.SendWR{{Header: make([]byte, 16), Payload: make([]byte, 60_000)}}); err != nil {
			break
		}
	}
	require.ErrorAs(t, err, &violation)
	assert.ErrorContains(t, err, "head moved to")
}

// TestRogueReadsWhatIsBeingInvalidated: Invalidate finds each Read that was granted, and none is granted
// after it.
func TestRogueReadsWhatIsBeingInvalidated(t *testing.T) {
	q, r := meetRogue(t)
	tag, err := q.Register(make([]byte, 100), rdma.RemoteRead)
	require.NoError(t, err)
	region, err := q.findRegion(tag.STag, 0, 100, rdma.RemoteRead)
	require.NoError(t, err)
	ask := func(number uint64) <-chan error {
		r.says(recordRead, readLen, words(number<<32, uint64(tag.STag), 0, 100))
		polled := make(chan error, 1)
		go func() {
			var wcs [1]rdma.Completion
			_, err := q.Poll(wcs[:])
			polled <- err
		}()
		return polled
	}

	q.exposed.mu.Lock()
	polled := ask(1)
	assert.Eventually(t, region.Held, time.Minute, 100*time.Microsecond, "Invalidate waits for the goroutine that grants a Read")
	q.exposed.mu.Unlock()
	require.NoError(t, <-polled)
	q.Invalidate(tag.STag)
	assert.True(t, q.exposed.slots[0].revoked)

	q.exposed.slots[0] = exposure{}
	q.regions.Insert(tag.STag, region) // as a Read finds it that came a moment earlier
	err = <-ask(2)
	assert.ErrorContains(t, err, "is not registered here")
	assert.Zero(t, q.exposed.slots[0].number)
}
