//go:build linux

package shm

import (
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gosdp/gosdp/rdma"
)

// rogue is a peer that breaks rules.
type rogue struct {
	conn *os.File
	a    *area
	out  producer
}

// meetRogue returns a queue pair and the rogue at its other end.
func meetRogue(t testing.TB) (*QueuePair, *rogue) {
	t.Helper()
	near, f, err := newArea()
	require.NoError(t, err)
	defer unix.Close(f)
	far, err := openArea(f, nil)
	require.NoError(t, err)
	x, y := socketPair(t)
	q, err := newQueuePair(x, near, 0, os.Getpid(), testConfig)
	require.NoError(t, err)
	q.ProvideReceive(16, 4096)
	r := &rogue{conn: y, a: far, out: newProducer(far, 1)}
	t.Cleanup(func() {
		q.Abort()
		r.conn.Close()
		r.a.unmap()
	})
	return q, r
}

// says puts a record with this header.
func (r *rogue) says(kind, length int, body []byte) {
	start := r.out.pos
	at := int(start-r.out.base) & (len(r.out.ring) - 1)
	if n := copy(r.out.ring[at+headerLen:], body); n < len(body) {
		copy(r.out.ring, body[n:])
	}
	r.out.pos += uint64(space(len(body)))
	r.out.unannounced += int32(space(len(body)))
	word(r.out.ring, at).Store(stampOf(r.out.key, start) | header(kind, length))
	if r.out.tell() {
		r.rings()
	}
}

// turns says that the small ring is in use again, and continues in that one.
func (r *rogue) turns(ring []byte) {
	if r.out.tell() {
		r.rings()
	}
	for r.out.dir.head.Load() != r.out.pos {
		runtime.Gosched()
	}
	r.out.dir.turn.Store(r.out.pos)
	if &ring[0] != &r.out.ring[0] {
		r.out.ring, r.out.base = ring, r.out.pos
	}
}

func (r *rogue) rings() { r.conn.Write([]byte{0}) }

// words returns the body of a record.
func words(w ...uint64) []byte {
	var b []byte
	for _, w := range w {
		b = binary.NativeEndian.AppendUint64(b, w)
	}
	return b
}

// ends waits until the queue pair has ended and returns why.
func ends(t testing.TB, q *QueuePair) error {
	t.Helper()
	return ended(t, q, ending(q))
}

// ended is ends for a queue pair whose ending is awaited.
func ended(t testing.TB, q *QueuePair, ending <-chan error) error {
	t.Helper()
	select {
	case err := <-ending:
		return err
	case <-time.After(time.Minute):
		q.Abort()
		require.Fail(t, "the queue pair goes on")
		return nil
	}
}

// ending consumes what arrives, in the background. The channel gets the reason why q ends.
func ending(q *QueuePair) <-chan error {
	done := make(chan error, 1)
	go func() {
		var wcs [4]rdma.Completion
		for {
			n, err := q.Wait(wcs[:])
			for _, wc := range wcs[:n] {
				if wc.Op == rdma.OpReceive {
					wc.Buffer.Release()
				}
			}
			if err != nil {
				done <- err
				return
			}
		}
	}()
	return done
}

// TestRogue: the victim's error names the violation, and its state says that it has ended.
func TestRogue(t *testing.T) {
	defer leavesNothing(t)()
	for _, v := range []struct {
		name  string
		does  func(r *rogue)
		error string
	}{
		{"longer than the ring", func(r *rogue) { r.says(recordSend, smallRing-7, nil) }, "record"},
		{"the longest", func(r *rogue) { r.says(recordSend, 1<<lengthBits-1, nil) }, "record"},
		{"longer than the big ring", func(r *rogue) {
			r.out.grow()
			r.says(recordSend, bigRing-7, nil)
		}, "record"},
		{"the big ring follows in the big ring", func(r *rogue) {
			r.out.grow()
			r.says(recordGrow, 0, nil)
		}, "grow record in the big ring"},
		{"the big ring follows, and more", func(r *rogue) { r.says(recordGrow, 8, words(1)) }, "grow record of 8 bytes"},
		{"longer than the small ring, in which it goes on", func(r *rogue) {
			r.out.grow()
			r.turns(r.out.small)
			r.says(recordSend, smallRing, nil)
		}, "in a ring of 4096"},
		{"goes on in the small ring, where it is", func(r *rogue) {
			r.says(recordSend, 8, words(1))
			r.turns(r.out.ring)
			r.says(15, 0, nil)
		}, "kind 15"},
		{"goes on in the small ring after what comes next", func(r *rogue) {
			r.out.grow()
			r.out.dir.turn.Store(r.out.pos + 8)
			r.says(15, 0, nil)
		}, "kind 15"},
		{"kind 15", func(r *rogue) { r.says(15, 0, nil) }, "kind 15"},
		{"longer than a buffer", func(r *rogue) {
			r.out.grow()
			r.says(recordSend, 5000, make([]byte, 5000))
		}, "for a buffer of 4096"},
		{"an Invalidate too short", func(r *rogue) { r.says(recordInvalidate, 4, make([]byte, 4)) }, "record"},
		{"an Invalidate of nothing", func(r *rogue) { r.says(recordInvalidate, 16, words(77, 1)) }, "is not registered"},
		{"a Write too short", func(r *rogue) { r.says(recordWrite, 24, words(1, 2, 3)) }, "record"},
		{"a Write to nothing", func(r *rogue) { r.says(recordWrite, 32, words(77, 0, 1, 0)) }, "is not registered"},
		{"a Write that wraps", func(r *rogue) { r.says(recordWrite, 32, words(1, ^uint64(0), ^uint64(0), 0)) }, "access"},
		{"a Read too short", func(r *rogue) { r.says(recordRead, 24, words(1, 2, 3)) }, "record"},
		{"a Read of nothing", func(r *rogue) { r.says(recordRead, 32, words(1<<32, 77, 0, 1)) }, "is not registered"},
		{"a Read in a slot that is none", func(r *rogue) { r.says(recordRead, 32, words(1<<32|maxReads, 77, 0, 0)) }, "slot 64"},
		{"a Read without a number", func(r *rogue) { r.says(recordRead, 32, words(0, 77, 0, 0)) }, "number 0"},
		{"too many Reads", func(r *rogue) {
			for i := range uint64(17) {
				r.says(recordRead, 32, words(1<<32|i, 0, 0, 0))
			}
		}, "more than 16"},
		{"two Reads in a slot", func(r *rogue) {
			for range 2 {
				r.says(recordRead, 32, words(1<<32, 0, 0, 0))
			}
		}, "more than 16"},
		{"an answer to no Read", func(r *rogue) { r.says(recordGrant, 16, words(1<<32, 0)) }, "waits for none"},
		{"an answer too short", func(r *rogue) { r.says(recordGrant, 8, words(1)) }, "record"},
		{"the end of no Read", func(r *rogue) { r.says(recordRefetched, 8, words(1<<32)) }, "has not begun"},
		{"the end of a Read in a slot that is none", func(r *rogue) { r.says(recordRefetched, 8, words(1<<32|1000)) }, "has not begun"},
		{"the end of a Read, too short", func(r *rogue) { r.says(recordRefetched, 4, make([]byte, 4)) }, "record"},
		{"Writes done that were not posted", func(r *rogue) { r.a.ctl.ways[0].written.Store(1); r.rings() }, "RDMA Writes"},
		{"a state that is none", func(r *rogue) { r.out.dir.state.Store(4); r.rings() }, "state"},
		{"rings without end", func(r *rogue) {
			for r.out.dir.idle.Load() == 0 {
				time.Sleep(time.Millisecond)
			}
			for {
				if _, err := r.conn.Write([]byte{0}); err != nil {
					return
				}
			}
		}, "doorbell rung repeatedly"},
	} {
		t.Run(v.name, func(t *testing.T) {
			q, r := meetRogue(t)
			var doing sync.WaitGroup
			doing.Go(func() { v.does(r) })
			err := ends(t, q)
			var violation *rdma.ProtocolError
			require.ErrorAs(t, err, &violation)
			assert.ErrorContains(t, err, v.error)
			if violation != errIdleRings {
				assert.EqualValues(t, stateTerminated, r.a.ctl.ways[0].state.Load())
			}
			_, err = q.PostSend([]rdma.SendWR{{Header: []byte("x")}})
			assert.Error(t, err)
			q.Close()
			r.conn.Close()
			doing.Wait()
		})
	}
}

// TestRogueHead: the sending half finds the violation.
func TestRogueHead(t *testing.T) {
	for name, head := range map[string]uint64{"beyond what is written": 1 << 40, "back": 0, "between records": 12} {
		t.Run(name, func(t *testing.T) {
			q, r := meetRogue(t)
			wr := []rdma.SendWR{{Header: make([]byte, 16), Payload: make([]byte, 40000)}}
			for range 3 {
				n, err := q.PostSend(wr)
				require.NoError(t, err)
				require.Equal(t, 1, n)
			}
			r.a.ctl.ways[0].head.Store(q.tx.ring.pos)
			for range 30 { // so that it looks at head
				q.PostSend(wr)
				r.a.ctl.ways[0].head.Store(q.tx.ring.pos)
			}
			r.a.ctl.ways[0].head.Store(head)
			var violation *rdma.ProtocolError
			var err error
			for range 20 {
				if _, err = q.PostSend(wr); err != nil {
					break
				}
			}
			require.ErrorAs(t, err, &violation)
			assert.Same(t, violation, ends(t, q))
		})
	}
}

// TestRogueThatDoesNotRing: such a peer looks silent: nothing arrives, and everything else continues.
func TestRogueThatDoesNotRing(t *testing.T) {
	q, r := meetRogue(t)
	done := ending(q)
	require.Eventually(t, func() bool { return r.out.dir.idle.Load() == 1 }, time.Minute, time.Millisecond)
	r.out.put(recordSend, words(1))
	n, err := q.PostSend([]rdma.SendWR{{Header: []byte("x")}})
	assert.NoError(t, err)
	assert.Equal(t, 1, n)
	require.NoError(t, q.Close())
	assert.ErrorIs(t, ended(t, q, done), net.ErrClosed)
}

// TestRogueAddress: there is no memory at the address of the bytes of a Write or a Read.
func TestRogueAddress(t *testing.T) {
	t.Run("Write", func(t *testing.T) {
		q, r := meetRogue(t)
		region, err := q.Register(make([]byte, 100), rdma.RemoteWrite)
		require.NoError(t, err)
		r.says(recordWrite, 32, words(uint64(region.STag), 0, 100, 8))
		assert.ErrorContains(t, ends(t, q), "none that can be read")
	})
	t.Run("Read", func(t *testing.T) {
		q, r := meetRogue(t)
		require.NoError(t, q.PostRead(rdma.ReadWR{Local: make([]byte, 100)}))
		r.says(recordGrant, 16, words(1<<32, 8))
		r.a.ctl.ways[0].granted[0].Store(1)
		completes := func() {
			t.Helper()
			var wcs [2]rdma.Completion
			n, err := q.Poll(wcs[:])
			require.NoError(t, err)
			require.Equal(t, 1, n)
			assert.Equal(t, rdma.Completion{Op: rdma.OpRead, Failed: true}, wcs[0])
		}
		completes()
		local, source := make([]byte, 100), []byte("may be read")
		require.NoError(t, q.PostRead(rdma.ReadWR{Local: local[:len(source)]}))
		r.says(recordGrant, 16, words(2<<32, addressOf(source)))
		r.a.ctl.ways[0].granted[0].Store(2)
		completes() // although it would succeed: the bytes of later Reads come after those
		assert.Equal(t, make([]byte, 100), local)
	})
	t.Run("withdrawn", func(t *testing.T) {
		q, r := meetRogue(t)
		local, source := make([]byte, 100), []byte("not to be had")
		require.NoError(t, q.PostRead(rdma.ReadWR{Local: local}))
		r.says(recordGrant, 16, words(1<<32, addressOf(source)))
		var wcs [1]rdma.Completion
		for range 100 { // the word of the slot was never set
			n, err := q.Poll(wcs[:])
			require.NoError(t, err)
			require.Zero(t, n)
		}
		assert.Equal(t, make([]byte, 100), local)
	})
	t.Run("withdrawn in the middle", func(t *testing.T) {
		q, r := meetRogue(t)
		granted := &r.a.ctl.ways[0].granted[0]
		// The target of the Read is the slot's word itself: the grant is withdrawn while the bytes
		// move.
		local, source := unsafe.Slice((*byte)(unsafe.Pointer(granted)), 4), make([]byte, 4)
		require.NoError(t, q.PostRead(rdma.ReadWR{Local: local}))
		granted.Store(1)
		r.says(recordGrant, 16, words(1<<32, addressOf(source)))
		var wcs [1]rdma.Completion
		for range 100 {
			n, err := q.Poll(wcs[:])
			require.NoError(t, err)
			require.Zero(t, n)
		}
		assert.Zero(t, granted.Load(), "the bytes have moved")
		assert.False(t, q.granted(), "and the Read does not go on")
	})
}

// TestScribbler: a peer writes at random all over the shared memory while messages go in both directions.
// The victim ends or continues each time. It does not crash, and writes nothing outside of the rings.
func TestScribbler(t *testing.T) {
	const ways = int(unsafe.Offsetof(control{}.ways))
	rounds := 40
	if testing.Short() {
		rounds = 10
	}
	for _, v := range []struct {
		name     string
		from, to int
		ends     bool // some of the time; what was overwritten need not be found
	}{
		{"everything", 0, areaLen, false},
		{"control", 0, int(controlLen), true},
		{"the way in", ways + int(unsafe.Sizeof(direction{})), ways + int(unsafe.Sizeof(direction{})) + 64, true},
		{"the way out", ways, ways + 192, true},
		{"rings", controlLen, areaLen, false},
	} {
		t.Run(v.name, func(t *testing.T) {
			ended := 0
			for round := range rounds {
				if scribbled(t, uint64(round), v.from, v.to) {
					ended++
				}
			}
			t.Logf("%d of %d ended", ended, rounds)
			assert.True(t, ended > 0 || !v.ends)
		})
	}
}

// scribbled reports that the victim has ended.
func scribbled(t *testing.T, seed uint64, from, to int) bool {
	near, f, err := newArea()
	require.NoError(t, err)
	defer unix.Close(f)
	far, err := openArea(f, nil)
	require.NoError(t, err)
	third, err := openArea(f, nil)
	require.NoError(t, err)
	defer third.unmap()
	x, y := socketPair(t)
	victim, err := newQueuePair(x, near, 0, os.Getpid(), testConfig)
	require.NoError(t, err)
	peer, err := newQueuePair(y, far, 1, os.Getpid(), testConfig)
	require.NoError(t, err)
	arena := make([]byte, 64<<10)
	region, err := victim.Register(arena[16<<10:48<<10], rdma.RemoteRead|rdma.RemoteWrite)
	require.NoError(t, err)
	var working sync.WaitGroup
	for _, q := range []*QueuePair{victim, peer} {
		q.ProvideReceive(1<<20, 64<<10)
		working.Go(func() {
			var wcs [4]rdma.Completion
			for {
				n, err := q.Wait(wcs[:])
				if err != nil {
					return
				}
				for _, wc := range wcs[:n] {
					if wc.Op == rdma.OpReceive {
						wc.Buffer.Release()
					}
				}
			}
		})
		working.Go(func() {
			sizes := []int{16, 100, 3000, 40000}
			local := make([]byte, 16<<10)
			for i := 0; ; i++ {
				_, err := q.PostSend([]rdma.SendWR{{Header: make([]byte, 16), Payload: make([]byte, sizes[i%4]), Most: 60000}})
				for range i % 16 {
					q.Append(local[:sizes[i%3]])
				}
				if err != nil && !errors.Is(err, rdma.ErrNoRoom) {
					return
				}
				if i%8 == 0 && q == peer {
					q.PostWrite(rdma.WriteWR{Local: local, STag: region.STag, VA: 100})
					q.PostRead(rdma.ReadWR{Local: local, STag: region.STag, VA: 100})
				}
				if q.Busy() && q.WaitRoom() != nil {
					return
				}
			}
		})
	}
	rng := rand.New(rand.NewPCG(seed, 1))
	for i := 0; i < 20_000 && victim.fault.Load() == nil; i++ {
		if i%64 == 0 {
			runtime.Gosched()
		}
		at := from + rng.IntN((to-from)/8)*8
		switch rng.IntN(3) {
		case 0:
			third.mem[at+rng.IntN(8)] = byte(rng.Uint32())
		case 1:
			binary.NativeEndian.PutUint64(third.mem[at:], rng.Uint64())
		default:
			binary.NativeEndian.PutUint64(third.mem[at:], rng.Uint64()>>rng.IntN(64))
		}
		if rng.IntN(64) == 0 {
			unix.Madvise(third.mem[bigStart:], unix.MADV_REMOVE)
		}
	}
	ended := victim.fault.Load() != nil || third.ctl.ways[1].state.Load() != stateOpen
	victim.Abort()
	peer.Abort()
	working.Wait()
	for i, b := range arena {
		if (i < 16<<10 || i >= 48<<10) && b != 0 {
			require.Fail(t, "a byte beside the region has changed")
		}
	}
	return ended
}

// TestDeath: the end of the peer is seen after what it had sent.
func TestDeath(t *testing.T) {
	q, r := meetRogue(t)
	for i := range uint64(3) {
		r.says(recordSend, 8, words(i))
	}
	r.conn.Close()
	var wcs [8]rdma.Completion
	n, err := q.Wait(wcs[:])
	require.NoError(t, err)
	assert.Equal(t, 3, n)
	for i, wc := range wcs[:n] {
		assert.Equal(t, words(uint64(i)), wc.Buffer.Bytes)
		wc.Buffer.Release()
	}
	assert.Equal(t, io.EOF, ends(t, q), "nothing was sent to it")
	_, err = q.PostSend([]rdma.SendWR{{Header: []byte("x")}})
	assert.ErrorIs(t, err, syscall.EPIPE)
	assert.Error(t, q.Drain(time.Minute))
}

// TestDeathBeforeAllWasRead: it is a reset before everything was read, and an end of file after.
func TestDeathBeforeAllWasRead(t *testing.T) {
	for _, v := range []struct {
		name string
		read uint64 // what the dead process has read of 100 bytes
		want error
	}{
		{"nothing", 0, syscall.ECONNRESET},
		{"most", 99, syscall.ECONNRESET},
		{"all", 100, io.EOF},
		{"more than there is", 101, syscall.ECONNRESET},
	} {
		t.Run(v.name, func(t *testing.T) {
			q, r := meetRogue(t)
			_, err := q.PostSend([]rdma.SendWR{{Header: []byte("header"), Payload: make([]byte, 60), Most: 200}, {Header: []byte("no payload")}})
			require.NoError(t, err)
			_, err = q.PostSend([]rdma.SendWR{{Header: []byte("header"), Payload: make([]byte, 10), Most: 200}})
			require.NoError(t, err)
			require.True(t, q.Append(make([]byte, 30)))
			r.a.ctl.ways[0].read.Store(v.read)
			r.conn.Close()
			assert.ErrorIs(t, ends(t, q), v.want)
		})
	}
}

// TestResetIsNoDeath: a reset remains one, whatever was read.
func TestResetIsNoDeath(t *testing.T) {
	q, r := meetRogue(t)
	r.a.ctl.ways[1].state.Store(stateAborted)
	r.conn.Close()
	assert.ErrorIs(t, ends(t, q), syscall.ECONNRESET)
}

// TestRoomOfADeadPeer: WaitRoom does not wait for room that a dead peer would make.
func TestRoomOfADeadPeer(t *testing.T) {
	q, r := meetRogue(t)
	wr := []rdma.SendWR{{Header: make([]byte, 16), Payload: make([]byte, 60000)}}
	for !q.Busy() {
		_, err := q.PostSend(wr)
		require.NoError(t, err)
	}
	done := make(chan error, 1)
	go func() { done <- q.WaitRoom() }()
	require.Eventually(t, func() bool { return r.a.ctl.ways[0].full.Load() == 1 }, time.Minute, time.Millisecond)
	r.conn.Close()
	assert.ErrorIs(t, <-done, syscall.ECONNRESET) // its program had not read what was sent
}

// TestPostsToNobody: a peer that has left is found without a poller. Its program will not get payload;
// what has none, such as a last message of the protocol, may be lost.
func TestPostsToNobody(t *testing.T) {
	for state, want := range map[uint32]error{stateClosed: syscall.EPIPE, stateAborted: syscall.ECONNRESET} {
		q, r := meetRogue(t)
		open := []rdma.SendWR{{Header: make([]byte, 16), Payload: make([]byte, 10), Most: 1000}}
		n, err := q.PostSend(open)
		require.NoError(t, err)
		require.Equal(t, 1, n)
		require.True(t, q.Append(make([]byte, 10)))
		r.a.ctl.ways[1].state.Store(state)
		assert.False(t, q.Append(make([]byte, 10)))
		n, err = q.PostSend([]rdma.SendWR{{Header: make([]byte, 16)}})
		assert.NoError(t, err)
		assert.Equal(t, 1, n)
		n, err = q.PostSend(open)
		assert.ErrorIs(t, err, want)
		assert.Zero(t, n)
	}
}

// TestDeadPeerCompletesNothing: its pid may belong to another process by now.
func TestDeadPeerCompletesNothing(t *testing.T) {
	source := make([]byte, 100)
	t.Run("Read", func(t *testing.T) {
		q, r := meetRogue(t)
		require.NoError(t, q.PostRead(rdma.ReadWR{Local: make([]byte, 100)}))
		r.a.ctl.ways[0].granted[0].Store(1)
		r.says(recordGrant, 16, words(1<<32, addressOf(source)))
		r.conn.Close()
		var wcs [1]rdma.Completion
		n, err := q.Wait(wcs[:])
		assert.Zero(t, n)
		assert.Equal(t, io.EOF, err)
	})
	t.Run("Write", func(t *testing.T) {
		q, r := meetRogue(t)
		region, err := q.Register(make([]byte, 100), rdma.RemoteWrite)
		require.NoError(t, err)
		r.says(recordWrite, 32, words(uint64(region.STag), 0, 100, addressOf(source)))
		r.says(recordSend, 8, words(1))
		r.conn.Close()
		var wcs [1]rdma.Completion
		n, err := q.Wait(wcs[:])
		assert.Zero(t, n)
		assert.Equal(t, io.EOF, err)
		assert.Zero(t, r.a.ctl.ways[1].written.Load())
	})
}

// TestCloseLosesWhatWasQueued: and the peer must not see an end in good order.
func TestCloseLosesWhatWasQueued(t *testing.T) {
	q, r := meetRogue(t)
	wr := []rdma.SendWR{{Header: make([]byte, 16), Payload: make([]byte, 60000)}}
	for !q.Busy() {
		_, err := q.PostSend(wr)
		require.NoError(t, err)
	}
	for range 2000 { // until the messages find no room either
		n, err := q.PostSend([]rdma.SendWR{{Header: make([]byte, 64)}})
		require.NoError(t, err)
		require.Equal(t, 1, n)
	}
	require.NotEmpty(t, q.tx.out)
	require.NoError(t, q.Close())
	assert.EqualValues(t, stateAborted, r.a.ctl.ways[0].state.Load())
}

// TestEndTakenBack: a peer says that it has left, and then that it has not. Nothing that it has said
// before keeps Wait awake.
func TestEndTakenBack(t *testing.T) {
	q, r := meetRogue(t)
	r.a.ctl.ways[1].state.Store(stateClosed)
	_, err := q.PostSend([]rdma.SendWR{{Header: make([]byte, 16), Payload: make([]byte, 1)}})
	require.ErrorIs(t, err, syscall.EPIPE)
	r.a.ctl.ways[0].written.Store(1)
	r.a.ctl.ways[1].state.Store(stateOpen)
	waited := make(chan error, 1)
	go func() {
		_, err := q.Wait(make([]rdma.Completion, 1))
		waited <- err
	}()
	require.Eventually(t, func() bool { return r.a.ctl.ways[1].idle.Load() != 0 }, time.Minute, time.Millisecond, "it never parks")
	q.Wake()
	require.NoError(t, <-waited)
}
