//go:build linux

package shm

import (
	"math/bits"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/rdma"
)

// queued returns how many bytes wait for room.
func queued(q *QueuePair) int {
	q.tx.Lock()
	defer q.tx.Unlock()
	return len(q.tx.out)
}

// TestRogueTakesNoAnswer: a peer begins Reads and ends them, but does not take the answers from the ring.
// At most one answer for each slot waits for room.
func TestRogueTakesNoAnswer(t *testing.T) {
	q, r := meetRogue(t)
	r.out.grow()
	var wcs [1]rdma.Completion
	var err error
	most := 0
	for number := uint64(1); err == nil && number < 2*bigRing/uint64(space(grantLen)); number++ {
		slot := number % 16
		r.says(recordRead, readLen, words(number<<32|slot, 0, 0, 0))
		r.says(recordRefetched, refetchLen, words(number<<32|slot))
		_, err = q.Poll(wcs[:])
		most = max(most, queued(q))
	}
	var violation *rdma.ProtocolError
	require.ErrorAs(t, err, &violation)
	assert.Equal(t, "shm, read", violation.Rule)
	assert.ErrorContains(t, err, "which has not been answered")
	assert.LessOrEqual(t, most, 16*space(grantLen))
}

// TestRogueAnswersAgain: a peer answers a Read once more after it has withdrawn the first answer. This
// end says once that it no longer needs the Read.
func TestRogueAnswersAgain(t *testing.T) {
	q, r := meetRogue(t)
	require.NoError(t, q.PostRead(rdma.ReadWR{Local: make([]byte, 100)}))
	var wcs [1]rdma.Completion
	answer := words(1<<32, addressOf(make([]byte, 100)))
	r.says(recordGrant, grantLen, answer) // but the slot's word says that there is no grant
	_, err := q.Poll(wcs[:])
	require.NoError(t, err)
	r.says(recordGrant, grantLen, answer)
	assert.ErrorContains(t, ends(t, q), "waits for none")
}

// TestReadsOfASlowPeer: Reads continue, however long the peer leaves records in the ring.
func TestReadsOfASlowPeer(t *testing.T) {
	a, b := pairOf(t, testConfig)
	defer a.Abort()
	defer b.Abort()
	b.ProvideReceive(1<<20, 64<<10)
	source := []byte("what is read")
	region, err := a.Register(source, rdma.RemoteRead)
	require.NoError(t, err)
	// Each batch that is taken tells the sender that there is room. A thousand small ones in a row,
	// for which SDP's credit does not suffice, would count as ringing without reason.
	var wcs [64]rdma.Completion
	for range 5 {
		for !a.Busy() {
			_, err := a.PostSend([]rdma.SendWR{{Header: make([]byte, 16), Payload: make([]byte, 60000)}})
			require.NoError(t, err)
		}
		for queued(a) == 0 { // until even short messages find no room
			_, err := a.PostSend([]rdma.SendWR{{Header: make([]byte, 16)}})
			require.NoError(t, err)
		}
		var local [16][12]byte
		for i := range local {
			require.NoError(t, b.PostRead(rdma.ReadWR{Local: local[i][:], STag: region.STag}))
		}
		n, err := a.Poll(wcs[:])
		require.NoError(t, err)
		require.Zero(t, n)
		assert.Equal(t, 16, bits.OnesCount64(a.tx.owed.Load()))
		for done := 0; done < 16; {
			n, err := b.Wait(wcs[:])
			require.NoError(t, err)
			for _, wc := range wcs[:n] {
				if wc.Op == rdma.OpRead {
					done++
				} else {
					wc.Buffer.Release()
				}
			}
		}
		for i := range local {
			assert.Equal(t, source, local[i][:])
		}
		assert.Zero(t, a.tx.owed.Load())
		_, err = a.Poll(wcs[:])
		require.NoError(t, err)
	}
}

// TestRogueWithoutReach: if neither end can access the other's memory, there are no RDMA Reads and
// Writes, not even of zero bytes.
func TestRogueWithoutReach(t *testing.T) {
	for _, v := range []struct {
		name  string
		kind  int
		n     uint64
		error string
	}{
		{"a Read", recordRead, 1, "shm, read: RDMA Read on a channel without RDMA"},
		{"a Read of nothing", recordRead, 0, "shm, read: RDMA Read on a channel without RDMA"},
		{"a Write", recordWrite, 1, "shm, write: RDMA Write on a channel without RDMA"},
		{"a Write of nothing", recordWrite, 0, "shm, write: RDMA Write on a channel without RDMA"},
	} {
		t.Run(v.name, func(t *testing.T) {
			q, r := meetRogue(t)
			q.peerPID = 0
			region, err := q.Register(make([]byte, 100), rdma.RemoteRead|rdma.RemoteWrite)
			require.NoError(t, err)
			if v.kind == recordRead {
				r.says(v.kind, readLen, words(1<<32, uint64(region.STag), 0, v.n))
			} else {
				r.says(v.kind, writeLen, words(uint64(region.STag), 0, v.n, 8))
			}
			err = ends(t, q)
			var violation *rdma.ProtocolError
			require.ErrorAs(t, err, &violation)
			assert.ErrorContains(t, err, v.error)
			assert.Zero(t, r.a.ctl.ways[1].granted[0].Load(), "the Read is not granted")
		})
	}
}

// TestRogueWritesAhead: a peer writes so many records that taking them would last long. The poller
// nevertheless returns soon.
func TestRogueWritesAhead(t *testing.T) {
	const large = 1 << 20
	source := make([]byte, large)
	for _, v := range []struct {
		name string
		n    int
		says func(r *rogue, i uint64, tag rdma.STag)
	}{
		{"Reads of nothing", bigRing / 64, func(r *rogue, i uint64, _ rdma.STag) {
			r.says(recordRead, readLen, words((i+1)<<32, 0, 0, 0))
			r.says(recordRefetched, refetchLen, words((i+1)<<32))
		}},
		{"Writes of nothing", bigRing / 64, func(r *rogue, _ uint64, _ rdma.STag) {
			r.says(recordWrite, writeLen, words(0, 0, 0, 0))
		}},
		{"Writes", 16, func(r *rogue, _ uint64, tag rdma.STag) {
			r.says(recordWrite, writeLen, words(uint64(tag), 0, large, addressOf(source)))
		}},
	} {
		t.Run(v.name, func(t *testing.T) {
			q, r := meetRogue(t)
			region, err := q.Register(make([]byte, large), rdma.RemoteWrite)
			require.NoError(t, err)
			r.out.grow()
			for i := range uint64(v.n) {
				v.says(r, i, region.STag)
			}
			var wcs [1]rdma.Completion
			q.Wake()
			n, err := q.Wait(wcs[:])
			require.NoError(t, err)
			assert.Zero(t, n)
			assert.Less(t, r.out.dir.head.Load(), r.out.pos, "all of it was taken first")
			for range 100 { // it ends only when everything was taken
				_, err := q.Poll(wcs[:])
				require.NoError(t, err)
			}
			assert.Equal(t, r.out.pos, r.out.dir.head.Load())
		})
	}
}

// TestPollFindsWhatIsAfterTransfers: Poll finds a message after as many RDMA requests as a correct peer can have outstanding.
func TestPollFindsWhatIsAfterTransfers(t *testing.T) {
	a, b := pairOf(t, testConfig)
	defer a.Abort()
	defer b.Abort()
	b.ProvideReceive(1, 100)
	for range maxWrites {
		require.NoError(t, a.PostWrite(rdma.WriteWR{}))
	}
	for range testConfig.ORD {
		require.NoError(t, a.PostRead(rdma.ReadWR{}))
	}
	_, err := a.PostSend([]rdma.SendWR{{Header: []byte("behind")}})
	require.NoError(t, err)
	var wcs [1]rdma.Completion
	n, err := b.Poll(wcs[:])
	require.NoError(t, err)
	require.Equal(t, 1, n)
	assert.Equal(t, "behind", string(wcs[0].Buffer.Bytes))
	wcs[0].Buffer.Release()
}

// TestRogueHoldsItsSegments: a peer says that it is fetching segments, and never stops. Invalidate and
// Close wait for it once.
func TestRogueHoldsItsSegments(t *testing.T) {
	for _, v := range []struct {
		name  string
		holds uint64 // slots, a bit each
		call  func(q *QueuePair, tag rdma.STag)
	}{
		{"all, Close", 1<<16 - 1, func(q *QueuePair, _ rdma.STag) { q.Close() }},
		{"all, Invalidate", 1<<16 - 1, (*QueuePair).Invalidate},
		{"the first, Invalidate", 1, (*QueuePair).Invalidate},
		{"the last, Invalidate", 1 << 15, (*QueuePair).Invalidate},
	} {
		t.Run(v.name, func(t *testing.T) {
			q, r := meetRogue(t)
			region, err := q.Register(make([]byte, 100), rdma.RemoteRead)
			require.NoError(t, err)
			way := &r.a.ctl.ways[1]
			for slot := range uint64(testConfig.IRD) {
				r.says(recordRead, readLen, words(1<<32|slot, uint64(region.STag), 0, 100))
				way.pulling[slot].Store(uint32(v.holds >> slot & 1))
			}
			var wcs [1]rdma.Completion
			_, err = q.Poll(wcs[:])
			require.NoError(t, err)
			begin := time.Now()
			v.call(q, region.STag)
			assert.GreaterOrEqual(t, time.Since(begin), revokePatience)
			for slot := range testConfig.IRD {
				assert.Zero(t, way.granted[slot].Load(), "the grant in slot %d stands", slot)
			}
		})
	}
}
