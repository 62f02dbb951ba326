//go:build linux

package shm

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"slices"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gosdp/gosdp/rdma"
	"github.com/gosdp/gosdp/test/watchdog"
)

// The victim's memory in FuzzArea: regions with canaries around them.
const (
	fuzzArena = 24 << 10
	fuzzBoth  = 4 << 10 // start of the region that may be read and written
	fuzzRead  = 10 << 10
	fuzzLocal = 16 << 10 // target of its own Reads
	fuzzLen   = 4 << 10  // of each

	fuzzTagBoth = 0x1000
	fuzzTagRead = 0x1001
)

// FuzzArea's input is a list of steps: a byte, and its arguments.
const (
	stepRecord = iota // kind (1), length (2), bytes of body (2), body: a record where the next one belongs; see placed
	stepWord          // which (1), value (8): a word of the control page
	stepByte          // where (3), what (1): anywhere in the area
	stepTaken         // the peer has taken everything that the victim has written
	stepPoll          // the rest is what the victim does
	stepSend          // bytes (2)
	stepRead
	stepWrite
	stepRevoke
	stepIdle
	stepRing
	stepHole // the pages of the big rings are freed
	stepKinds
)

// fuzzWords are the words of the control page that stepWord chooses from.
func fuzzWords(c *control, which byte) (set func(uint64)) {
	in, out := &c.ways[1], &c.ways[0]
	slot := int(which>>4) % maxReads
	switch which & 15 {
	case 0:
		return in.key.Store
	case 1:
		return func(v uint64) { in.idle.Store(uint32(v)) }
	case 2:
		return func(v uint64) { in.state.Store(uint32(v)) }
	case 3:
		return in.turn.Store
	case 4:
		return out.head.Store
	case 5:
		return func(v uint64) { out.full.Store(uint32(v)) }
	case 6:
		return func(v uint64) { out.written.Store(uint32(v)) }
	case 7:
		return func(v uint64) { out.granted[slot].Store(uint32(v)) }
	case 8:
		return out.key.Store
	case 9:
		return func(v uint64) { out.idle.Store(uint32(v)) }
	case 10:
		return func(v uint64) { out.state.Store(uint32(v)) }
	case 11:
		return out.turn.Store
	case 12:
		return in.head.Store
	case 13:
		return func(v uint64) { in.written.Store(uint32(v)) }
	case 14:
		return func(v uint64) { in.granted[slot].Store(uint32(v)) }
	}
	return func(v uint64) { in.pulling[slot].Store(uint32(v)) }
}

// fuzzVictim is a queue pair whose peer is the fuzzer.
type fuzzVictim struct {
	*QueuePair
	r          *rogue
	arena, was []byte
	source     []byte          // where the peer's bytes are
	posted     map[uint64]bool // RDMA Reads and Writes that have not completed
	next       uint64
	over       error
}

func newFuzzVictim(t testing.TB) *fuzzVictim {
	q, r := meetRogue(t)
	v := &fuzzVictim{QueuePair: q, r: r, arena: make([]byte, fuzzArena), source: bytes.Repeat([]byte{0xA5}, 2*fuzzArena), posted: make(map[uint64]bool)}
	for i := range v.arena {
		v.arena[i] = byte(i*7 + i>>8)
	}
	v.was = slices.Clone(v.arena)
	expose(t, q, fuzzTagBoth, v.arena[fuzzBoth:][:fuzzLen], rdma.RemoteRead|rdma.RemoteWrite)
	expose(t, q, fuzzTagRead, v.arena[fuzzRead:][:fuzzLen], rdma.RemoteRead)
	return v
}

// expose registers b under the same STag in every run.
func expose(t testing.TB, q *QueuePair, tag rdma.STag, b []byte, access rdma.Access) {
	t.Helper()
	region, err := q.Register(b, access)
	require.NoError(t, err)
	q.regions.Rename(region.STag, tag)
}

// poll takes what has arrived.
func (v *fuzzVictim) poll(t *testing.T) {
	var wcs [4]rdma.Completion
	n, err := v.Poll(wcs[:])
	for _, wc := range wcs[:n] {
		if wc.Op == rdma.OpReceive {
			if len(wc.Buffer.Bytes) > 4096 {
				t.Fatalf("a message of %d bytes for a buffer of 4096", len(wc.Buffer.Bytes))
			}
			wc.Buffer.Release()
			continue
		}
		if !v.posted[wc.ID] {
			t.Fatalf("transfer %d completes, and was not posted, or twice", wc.ID)
		}
		delete(v.posted, wc.ID)
	}
	if err != nil {
		v.over = err
	}
}

// step carries out the first step of b and returns the rest.
func (v *fuzzVictim) step(t *testing.T, b []byte) []byte {
	take := func(n int) uint64 {
		var w [8]byte
		n = copy(w[:n], b)
		b = b[n:]
		return binary.LittleEndian.Uint64(w[:])
	}
	kind := take(1) % stepKinds
	switch kind {
	case stepRecord:
		kind, length, n := int(take(1)), int(take(2)), int(take(2))
		n = min(n, len(b), 5000)
		if kind&0x40 != 0 {
			length += n // the correct length
		}
		if fits, err := v.r.out.fits(space(n)); fits && err == nil {
			body := slices.Clone(b[:n])
			if kind&0x20 == 0 {
				v.placed(kind&15, body)
			}
			v.r.says(kind&15, length&(1<<lengthBits-1), body)
			if kind&15 == recordGrow {
				v.r.out.ring, v.r.out.base = v.r.out.big, v.r.out.pos
			}
		}
		b = b[n:]
	case stepWord:
		which := byte(take(1))
		fuzzWords(v.r.a.ctl, which)(take(8))
	case stepByte:
		at := int(take(3)) % areaLen
		v.r.a.mem[at] = byte(take(1))
	case stepTaken:
		v.r.a.ctl.ways[0].head.Store(v.tx.ring.pos)
	case stepPoll:
		v.poll(t)
	case stepSend:
		n := int(take(2))
		v.PostSend([]rdma.SendWR{{Header: make([]byte, 16), Payload: make([]byte, n)}})
	case stepRead:
		v.next++
		if v.PostRead(rdma.ReadWR{ID: v.next, Local: v.arena[fuzzLocal:][:fuzzLen], STag: 1}) == nil {
			v.posted[v.next] = true
		}
	case stepWrite:
		v.next++
		if v.PostWrite(rdma.WriteWR{ID: v.next, Local: v.arena[fuzzRead:][:fuzzLen], STag: 1}) == nil {
			v.posted[v.next] = true
		}
	case stepRevoke:
		v.Invalidate(fuzzTagRead)
	case stepIdle:
		v.Shrink()
	case stepRing:
		v.r.rings()
	case stepHole:
		unix.Madvise(v.r.a.mem[bigStart:], unix.MADV_REMOVE)
	}
	return b
}

// placed replaces the addresses in a record by those of bytes that can be read, and makes granted what
// the record grants: no recorded address is one of this process.
func (v *fuzzVictim) placed(kind int, body []byte) {
	switch {
	case kind == recordWrite && len(body) == writeLen:
		native.PutUint64(body[24:], addressOf(v.source))
	case kind == recordGrant && len(body) == grantLen:
		native.PutUint64(body[8:], addressOf(v.source))
		v.r.a.ctl.ways[0].granted[native.Uint32(body)%maxReads].Store(native.Uint32(body[4:]))
	}
}

// FuzzArea lets a peer write anything into the shared memory between any two steps of the victim. The
// victim continues, or ends with one of the expected kinds of error. It changes only memory that the
// peer may write, and completes only what was posted.
func FuzzArea(f *testing.F) {
	for _, s := range recordedArea(f) {
		f.Add(s)
	}
	f.Add([]byte{stepRead, stepWord, 7, 1, 0, 0, 0, 0, 0, 0, 0, stepRecord, recordGrant | 0x40, 0, 0, 16, 0, 0, 0, 0, 0, 1, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, stepPoll})
	f.Add([]byte{stepSend, 0xFF, 0x0F, stepSend, 0xFF, 0xEF, stepTaken, stepIdle, stepSend, 1, 0, stepWord, 4, 9, 0, 0, 0, 0, 0, 0, 0, stepSend, 0xFF, 0xFF})
	for _, w := range [][3]uint64{
		{fuzzTagBoth, 0, fuzzLen}, {fuzzTagBoth, 1, fuzzLen}, {fuzzTagBoth, fuzzLen, 0}, {fuzzTagBoth, ^uint64(0) - 7, 16},
		{fuzzTagRead, 0, 1}, {77, 0, 1}, {77, 0, 0},
	} {
		for kind, body := range map[byte][]byte{recordWrite: words(w[0], w[1], w[2], 0), recordRead: words(1<<32, w[0], w[1], w[2])} {
			f.Add(append(append([]byte{stepRecord, kind | 0x40, 0, 0, 32, 0}, body...), stepPoll, stepPoll))
		}
	}
	f.Add([]byte{stepWord, 2, 1, 0, 0, 0, 0, 0, 0, 0, stepPoll})
	f.Add([]byte{stepWord, 2, 9, 0, 0, 0, 0, 0, 0, 0, stepPoll})
	f.Fuzz(func(t *testing.T, steps []byte) {
		defer watchdog.Start()()
		if len(steps) > 20_000 {
			return
		}
		v := newFuzzVictim(t)
		for n := 0; len(steps) > 0 && n < 200; n++ {
			steps = v.step(t, steps)
		}
		for range 40 { // for what is left in the ring
			if v.poll(t); v.over != nil {
				break
			}
		}
		if err := v.over; err != nil {
			checkEndOfFuzz(t, err)
			_, err := v.PostSend([]rdma.SendWR{{Header: []byte("x")}})
			if err == nil {
				t.Fatal("a queue pair that has ended takes messages")
			}
		}
		v.Abort()
		v.r.conn.Close()
		for _, may := range []int{fuzzBoth, fuzzLocal} {
			copy(v.was[may:][:fuzzLen], v.arena[may:])
		}
		if !bytes.Equal(v.was, v.arena) {
			t.Fatal("memory has changed that the peer may not write")
		}
	})
}

// checkEndOfFuzz checks that a queue pair has ended with one of the expected kinds of error.
func checkEndOfFuzz(t *testing.T, err error) {
	t.Helper()
	var violation *rdma.ProtocolError
	var terminated *rdma.TerminateError
	switch {
	case errors.As(err, &violation), errors.As(err, &terminated):
	case err == io.EOF, errors.Is(err, syscall.ECONNRESET), errors.Is(err, net.ErrClosed):
	default:
		t.Fatalf("it ended with %v", err)
	}
}

// recordedArea runs a session with every kind of record, and returns what its first end would have to
// write into the area for the other to see the same: all at once, and record by record.
func recordedArea(t testing.TB) [][]byte {
	t.Helper()
	near, far := pairOf(t, testConfig)
	defer near.Abort()
	defer far.Abort()
	arenas := [2][]byte{make([]byte, fuzzArena), make([]byte, fuzzArena)}
	ends := [2]*QueuePair{near, far}
	for i, q := range ends {
		q.ProvideReceive(64, 4096)
		expose(t, q, fuzzTagBoth, arenas[i][fuzzBoth:][:fuzzLen], rdma.RemoteRead|rdma.RemoteWrite)
		expose(t, q, fuzzTagRead, arenas[i][fuzzRead:][:fuzzLen], rdma.RemoteRead)
	}
	turns := func(n int) {
		var wcs [8]rdma.Completion
		for range n {
			for _, q := range ends {
				k, err := q.Poll(wcs[:])
				require.NoError(t, err)
				for _, wc := range wcs[:k] {
					if wc.Op == rdma.OpReceive {
						wc.Buffer.Release()
					}
				}
			}
		}
	}
	for i, q := range ends {
		send := func(wr rdma.SendWR) {
			n, err := q.PostSend([]rdma.SendWR{wr})
			require.NoError(t, err)
			require.Equal(t, 1, n)
			turns(1)
		}
		send(rdma.SendWR{Header: []byte("a message"), Payload: []byte("of two pieces")})
		require.NoError(t, q.PostRead(rdma.ReadWR{ID: 1, Local: arenas[i][fuzzLocal:][:100], STag: fuzzTagRead, VA: 9}))
		require.NoError(t, q.PostRead(rdma.ReadWR{ID: 2, STag: fuzzTagRead}))
		require.NoError(t, q.PostWrite(rdma.WriteWR{ID: 3, Local: arenas[i][fuzzLocal:][:100], STag: fuzzTagBoth, VA: 5}))
		turns(4)
		send(rdma.SendWR{Header: []byte("revokes"), Invalidate: fuzzTagRead})
		for range 3 {
			send(rdma.SendWR{Header: make([]byte, 16), Payload: make([]byte, 3000)}) // goes to the big ring
		}
		turns(2)
	}
	var all []byte
	var each [][]byte
	c := newConsumer(near.area, 0) // from the beginning: nothing was overwritten
	for {
		r, ok, err := c.next()
		require.NoError(t, err)
		if !ok {
			break
		}
		body := make([]byte, r.length)
		c.body(body, 0)
		c.done(r)
		s := []byte{stepRecord, byte(r.kind) | 0x40, 0, 0}
		s = binary.LittleEndian.AppendUint16(s, uint16(r.length))
		s = append(append(s, body...), stepPoll)
		all = append(all, s...)
		each = append(each, s)
	}
	require.Greater(t, len(each), 8)
	kinds := make(map[byte]bool)
	for _, s := range each {
		kinds[s[1]&15] = true
	}
	for kind := byte(recordSend); kind <= recordRefetched; kind++ {
		require.True(t, kinds[kind], "a session has records of kind %d", kind)
	}
	// The victim's own Reads give the grants of the session something to match.
	return append(each, all, append([]byte{stepRead, stepRead, stepPoll}, all...))
}
