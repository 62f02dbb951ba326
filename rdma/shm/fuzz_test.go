//go:build linux

package shm

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gosdp/gosdp/rdma"
)

// The victim's memory in FuzzArea: regions with canaries around them.
const (
	fuzzArena = 24 << 10
	fuzzBoth  = 4 << 10 // where what may be read and written begins
	fuzzRead  = 10 << 10
	fuzzLocal = 16 << 10 // where its own Reads go
	fuzzLen   = 4 << 10  // of each

	fuzzTagBoth = 0x1000
	fuzzTagRead = 0x1001
)

// What FuzzArea's input says, step by step: a byte, and what belongs to it.
const (
	stepRecord = iota // kind (1), length (2), bytes of body (2), body: a record where the next one belongs; see placed
	stepWord          // which (1), value (8): a word of the control page
	stepByte          // where (3), what (1): anywhere in the area
	stepTaken         // the peer has taken all that the victim has written
	stepPoll          // the rest is what the victim does
	stepSend          // bytes (2)
	stepRead
	stepWrite
	stepRevoke
	stepIdle
	stepRing
	stepHole // the pages of the big rings are given back
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

// expose registers b under an STag that is the same each time.
func expose(t testing.TB, q *QueuePair, tag rdma.STag, b []byte, access rdma.Access) {
	t.Helper()
	region, err := q.Register(b, access)
	require.NoError(t, err)
	q.regions.byTag[tag] = q.regions.byTag[region.STag]
	delete(q.regions.byTag, region.STag)
}

// poll takes in what has come.
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
			length += n // as it should be
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
		v.Idle()
	case stepRing:
		v.r.rings()
	case stepHole:
		unix.Madvise(v.r.a.mem[bigStart:], unix.MADV_REMOVE)
	}
	return b
}

// placed has the addresses in a record be those of bytes that can be read, and what
// is granted be granted: no recorded address is one in this process.
func (v *fuzzVictim) placed(kind int, body []byte) {
	switch {
	case kind == recordWrite && len(body) == writeLen:
		native.PutUint64(body[24:], addressOf(v.source))
	case kind == recordGrant && len(body) == grantLen:
		native.PutUint64(body[8:], addressOf(v.source))
		v.r.a.ctl.ways[0].granted[native.Uint32(body)%maxReads].Store(native.Uint32(body[4:]))
	}
}

// FuzzArea has a peer that writes what it likes into the shared memory between
// any two steps of the victim's. The victim goes on, or ends with an error of the
// kinds there are; it changes no memory but what the peer may write, and
// completes nothing that was not posted.
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
		if len(steps) > 20_000 {
			return
		}
		v := newFuzzVictim(t)
		for n := 0; len(steps) > 0 && n < 200; n++ {
			steps = v.step(t, steps)
		}
		for range 40 { // what is left in the ring
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

// checkEndOfFuzz checks that a queue pair has ended with an error of the kinds
// there are.
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

// recordedArea runs a session with every kind of record, and returns what its
// first end would have to write into the area for the other to see the same: all
// at once, and record by record.
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
			send(rdma.SendWR{Header: make([]byte, 16), Payload: make([]byte, 3000)}) // into the big ring
		}
		turns(2)
	}
	var all []byte
	var each [][]byte
	c := newConsumer(near.area, 0) // from the beginning: nothing has been written over
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
	// With the victim's own Reads the grants of the session have something to meet.
	return append(each, all, append([]byte{stepRead, stepRead, stepPoll}, all...))
}

// relay is what the ends of a channel have said to open it, and the ends.
type relay struct {
	dials, listens []byte
	ends           [2]rdma.QueuePair
}

// relayed has dial open a channel with an invitation of the place through a relay, which
// passes on what either end says, and descriptors.
func relayed(t testing.TB, p *place, dial func(conn *net.UnixConn, token [16]byte) (*QueuePair, error)) (said relay) {
	t.Helper()
	dials, relay1 := socketPair(t)
	relay2, listens := socketPair(t)
	var relaying sync.WaitGroup
	pass := func(from, to *net.UnixConn, said *[]byte) {
		b, oob := make([]byte, 1024), make([]byte, 1024)
		for {
			n, k, _, _, err := from.ReadMsgUnix(b, oob)
			if err != nil || n == 0 {
				return
			}
			to.WriteMsgUnix(b[:n], oob[:k], nil)
			messages, _ := unix.ParseSocketControlMessage(oob[:k])
			for i := range messages {
				files, _ := unix.ParseUnixRights(&messages[i])
				for _, file := range files {
					unix.Close(file)
				}
			}
			*said = append(*said, b[:n]...)
		}
	}
	relaying.Go(func() { pass(relay1, relay2, &said.dials) })
	relaying.Go(func() { pass(relay2, relay1, &said.listens) })
	i := fuzzInvite(t, p)
	pid, uid, err := credentials(listens, nil)
	require.NoError(t, err)
	var accepting sync.WaitGroup
	accepting.Go(func() {
		if !p.join(listens, pid, uid) {
			listens.Close()
		}
	})
	q, err := dial(dials, fuzzToken)
	require.NoError(t, err)
	accepting.Wait()
	taken, err := i.Take(t.Context())
	require.NoError(t, err)
	relay1.CloseRead()
	relay2.CloseRead()
	relaying.Wait()
	relay1.Close()
	relay2.Close()
	said.ends = [2]rdma.QueuePair{q, taken}
	return said
}

// recordedJoin opens a channel and returns what either end has said for it.
func recordedJoin(t testing.TB, p *place) (dials, listens []byte) {
	t.Helper()
	said := relayed(t, p, func(conn *net.UnixConn, token [16]byte) (*QueuePair, error) {
		return join(conn, rdma.Address{Token: token}, stepConfig, []byte("hello"), settle("re: hello"))
	})
	for _, q := range said.ends {
		q.Abort()
	}
	return said.dials, said.listens
}

var fuzzToken = [16]byte{1, 2, 3}

// fuzzInvite invites whoever has fuzzToken.
func fuzzInvite(t testing.TB, p *place) *invitation {
	t.Helper()
	made, err := p.Invite(rdma.Peer{}, func(private []byte) ([]byte, int, error) {
		if len(private) == 0 {
			return nil, 0, errors.New("it says nothing")
		}
		return append([]byte("re: "), private[:min(len(private), 200)]...), 7, nil
	})
	require.NoError(t, err)
	i := made.(*invitation)
	p.forget(nameOf(i.token))
	p.mu.Lock()
	defer p.mu.Unlock()
	i.token = fuzzToken
	p.invited[nameOf(fuzzToken)] = i
	return i
}

// openFiles counts this process's descriptors.
func openFiles(t testing.TB) int {
	files, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	return len(files)
}

// FuzzOpening takes any bytes, and any descriptors with them, as what a process
// says that comes to a place. No descriptor is taken, and the answers are some.
func FuzzOpening(f *testing.F) {
	p, err := listen(stepConfig)
	require.NoError(f, err)
	f.Cleanup(func() { p.Close() })
	said, _ := recordedJoin(f, p)
	opening, response := said[:openingLen], said[openingLen:]
	for _, how := range []byte{0, 1, 2, 0x10, 0x11, 0x21, 0x40, 0x80} {
		f.Add(how, opening, response)
	}
	f.Add(byte(0), opening[:openingLen-1], []byte(nil))
	f.Add(byte(0), []byte(magic), []byte(nil))
	f.Add(byte(0), opening, response[:responseLen-1])
	// The lowest bits of how are the descriptors, 0x30 with what they come, 0x40: an old
	// kernel, 0x80: the proof is left as it is.
	f.Fuzz(func(t *testing.T, how byte, opening, response []byte) {
		if len(opening)+len(response) > 4096 {
			return
		}
		if how&0x40 != 0 {
			oldKernel(t)
		}
		before := openFiles(t)
		i := fuzzInvite(t, p)
		x, y := socketPair(t)
		require.NoError(t, setRights(y, false)) // as an accepted one
		g := newGuest(x, fuzzToken)
		pid, uid, err := credentials(y, nil)
		require.NoError(t, err)
		joined := make(chan struct{})
		go func() {
			defer close(joined)
			if !p.join(y, pid, uid) {
				closeAside(y)
			}
		}()
		other, err := os.Open(os.DevNull)
		require.NoError(t, err)
		says := func(b []byte, bit byte) {
			var rights []byte
			if how&bit != 0 && len(b) > 0 {
				rights = unix.UnixRights(slices.Repeat([]int{int(other.Fd())}, int(how&15))...)
			}
			if _, _, err := x.WriteMsgUnix(b, rights, nil); err != nil {
				x.Write(b)
			}
		}
		says(opening, 0x10)
		if len(opening) == openingLen {
			copy(g.opening.name[:], opening[len(magic):])
			copy(g.opening.nonce[:], opening[len(magic)+nameLen:])
			if c, err := readChallenge(x); err == nil {
				g.challenge = c
				if r := g.response(""); how&0x80 == 0 && len(response) >= proofLen {
					response = append(r.proof[:], response[proofLen:]...)
				}
			}
		}
		says(response, 0x20)
		x.CloseWrite()
		<-joined
		i.Withdraw()
		if h, fd, err := readAnswer(x); err == nil {
			unix.Close(fd)
			if how&0x80 != 0 {
				t.Fatalf("it is answered, and has not proved itself: %+v", h)
			}
		}
		x.Close()
		other.Close()
		closesEnd(t)
		if now := openFiles(t); now > before {
			t.Fatalf("%d descriptors were %d", now, before)
		}
	})
}

// closesEnd waits for what is closed in the background.
func closesEnd(t testing.TB) {
	t.Helper()
	require.Eventually(t, func() bool { return aside.Load() == 0 }, 10*time.Second, 100*time.Microsecond)
}

// FuzzAnswer takes any bytes, and any descriptors with them, as what a place says.
func FuzzAnswer(f *testing.F) {
	p, err := listen(stepConfig)
	require.NoError(f, err)
	f.Cleanup(func() { p.Close() })
	_, said := recordedJoin(f, p)
	first, second := said[:challengeLen], said[challengeLen:]
	for _, how := range []byte{0, 1, 2, 3, 0x11, 0x40, 0x41, 0x81, 0x21} {
		f.Add(how, first, second)
	}
	f.Add(byte(1), first, second[:len(second)-1])
	f.Add(byte(1), first, second[:answerLen-1])
	f.Add(byte(0), first[:challengeLen-1], []byte(nil))
	refuses := challenge{flags: refused, text: []byte("the token is not good")}
	f.Add(byte(0), refuses.append(nil), []byte(nil))
	later := answer{flags: refused, private: []byte("as you like")}
	f.Add(byte(0), first, later.append(nil))
	// The lowest bits of how are the descriptors, the first a memory file; 0x10: they
	// come with the challenge; 0x20: and are no memory files; 0x40: an old kernel; 0x80:
	// the proof is left as it is.
	f.Fuzz(func(t *testing.T, how byte, first, second []byte) {
		if len(first)+len(second) > 4096 {
			return
		}
		if how&0x40 != 0 {
			oldKernel(t)
		}
		before := openFiles(t)
		x, y := socketPair(t)
		require.NoError(t, setRights(x, false))              // as Dial does
		x.SetDeadline(time.Now().Add(20 * time.Millisecond)) // a challenge may be one cut short
		var answering sync.WaitGroup
		answering.Go(func() {
			a, area, err := newArea()
			if !assert.NoError(t, err) {
				return
			}
			a.unmap()
			defer area.Close()
			other, err := os.Open(os.DevNull)
			if !assert.NoError(t, err) {
				return
			}
			defer other.Close()
			says := func(b []byte, files bool) {
				var rights []byte
				if files && len(b) > 0 && how&15 > 0 {
					fds := slices.Repeat([]int{int(other.Fd())}, int(how&15))
					if how&0x20 == 0 {
						fds[0] = int(area.Fd())
					}
					rights = unix.UnixRights(fds...)
				}
				if _, _, err := y.WriteMsgUnix(b, rights, nil); err != nil {
					y.Write(b)
				}
			}
			defer y.CloseWrite()
			o, err := readOpening(y)
			if err != nil {
				return
			}
			if how&0x80 == 0 && len(first) >= challengeLen {
				var c challenge
				copy(c.nonce[:], first[len(magic)+1:])
				good := proof(fuzzToken, listens, o.nonce, c.nonce)
				first = slices.Concat(first[:len(magic)+1+nonceLen], good, first[challengeLen-2:])
			}
			says(first, how&0x10 != 0)
			r, err := readResponse(y)
			if err != nil {
				return
			}
			if how&0x80 != 0 {
				t.Errorf("it responds to a place that has not proved itself: %+v", r)
			}
			says(second, how&0x10 == 0)
		})
		q, err := join(x, rdma.Address{Token: fuzzToken}, stepConfig, []byte("hello"), func(reply []byte) (int, error) {
			if len(reply) == 0 {
				return 0, errors.New("it says nothing")
			}
			return 5, nil
		})
		if err != nil {
			closeAside(x)
		} else {
			x.SetDeadline(time.Time{})
		}
		answering.Wait()
		if err == nil {
			var wcs [1]rdma.Completion
			_, err := q.Wait(wcs[:])
			checkEndOfFuzz(t, err) // the peer has gone
			q.Abort()
		}
		y.Close()
		closesEnd(t)
		if now := openFiles(t); now > before {
			t.Fatalf("%d descriptors were %d", now, before)
		}
	})
}
