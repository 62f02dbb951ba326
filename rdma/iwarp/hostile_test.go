package iwarp

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/rdma"
	"github.com/gosdp/gosdp/rdma/iwarp/mpa"
)

// The victim's memory: regions and the targets of its Reads, with canaries before, between and
// after them.
const (
	arenaLen   = 128 << 10
	bothAt     = 4 << 10 // may be read and written by the peer
	bothLen    = 32 << 10
	readAt     = 40 << 10 // may be read
	readLen    = 8 << 10
	writeAt    = 52 << 10 // may be written
	writeLen   = 32 << 10
	local1At   = 88 << 10 // of the victim's first Read
	local1Len  = 26 << 10
	local2At   = 116 << 10 // and its second
	local2Len  = 1 << 10
	victimIRD  = 2
	victimBufs = 4
	victimSize = 1000 // bytes in a receive buffer
)

// victim is a queue pair with memory that its peer may access and memory that it may not.
type victim struct {
	q                   *QueuePair
	arena, was          []byte
	both, reads, writes uint32 // STags
}

// arena returns the initial contents of the victim's memory.
var arena = pattern(1, arenaLen)

func newVictim(t testing.TB, q *QueuePair) *victim {
	t.Helper()
	v := &victim{q: q, arena: slices.Clone(arena), was: slices.Clone(arena)}
	q.ProvideReceive(victimBufs, victimSize)
	for _, r := range []struct {
		stag    *uint32
		at, len int
		access  rdma.Access
	}{
		{&v.both, bothAt, bothLen, rdma.RemoteRead | rdma.RemoteWrite},
		{&v.reads, readAt, readLen, rdma.RemoteRead},
		{&v.writes, writeAt, writeLen, rdma.RemoteWrite},
	} {
		region, err := q.Register(v.arena[r.at:r.at+r.len], r.access)
		require.NoError(t, err)
		*r.stag = uint32(region.STag)
	}
	return v
}

// read posts the victim's two Reads, whose sink STags are 1 and 2.
func (v *victim) read(t testing.TB) {
	t.Helper()
	require.NoError(t, v.q.PostRead(rdma.ReadWR{ID: 1, Local: v.arena[local1At:][:local1Len], STag: 77}))
	require.NoError(t, v.q.PostRead(rdma.ReadWR{ID: 2, Local: v.arena[local2At:][:local2Len], STag: 78}))
}

// untouched checks that nothing has changed except, perhaps, arena[from:to].
func (v *victim) untouched(t testing.TB, from, to int) {
	t.Helper()
	copy(v.was[from:to], v.arena[from:to])
	if bytes.Equal(v.was, v.arena) {
		return
	}
	for i := range v.arena {
		if v.arena[i] != v.was[i] {
			t.Errorf("the victim's memory has changed at %#x", i)
			return
		}
	}
}

// outcome is what a queue pair delivered until it ended.
type outcome struct {
	messages []string // in order
	done     []uint64 // Reads
	err      error
}

// outcome waits for the end.
func (v *victim) outcome() (o outcome) {
	var wcs [3]rdma.Completion
	for {
		n, err := v.q.Wait(wcs[:])
		for _, wc := range wcs[:n] {
			switch wc.Op {
			case rdma.OpReceive:
				o.messages = append(o.messages, string(wc.Buffer.Bytes))
				wc.Buffer.Release()
			case rdma.OpRead:
				o.done = append(o.done, wc.ID)
			}
		}
		if o.err = err; err != nil {
			return o
		}
	}
}

// hostileVariants are the variants that the tests with a hostile peer run over.
var hostileVariants = []struct {
	name        string
	crc, stream bool
}{
	{name: "crc", crc: true},
	{name: "nocrc"},
	{name: "stream", crc: true, stream: true},
}

// hostileTo returns a victim, which has accepted the connection, and the bare
// TCP connection of its peer, which has negotiated MPA and sent no FPDU.
func hostileTo(t testing.TB, crc, stream bool) (*victim, *net.TCPConn) {
	t.Helper()
	client, server := tcpPair(t)
	peer := client.(*net.TCPConn)
	peer.SetDeadline(time.Now().Add(time.Minute))
	peer.SetReadBuffer(64 << 10) // so that the victim soon notices a peer that does not read
	server.(*net.TCPConn).SetWriteBuffer(64 << 10)
	flags := byte(0)
	if crc {
		flags = 0x40
	}
	_, err := peer.Write(append([]byte("MPA ID Req Frame"), flags, 1, 0, 0))
	require.NoError(t, err)
	if stream {
		server = streamOnly{server}
	}
	request, err := ReadRequest(server)
	require.NoError(t, err)
	q, err := request.Accept(Config{NoCRC: !crc, IRD: victimIRD, ORD: 2, MaxULPDU: mpa.SoftwareULPDU}, nil)
	require.NoError(t, err)
	reply := make([]byte, 20)
	_, err = io.ReadFull(peer, reply)
	require.NoError(t, err)
	require.Equal(t, string(append([]byte("MPA ID Rep Frame"), flags, 1, 0, 0)), string(reply))
	return newVictim(t, q), peer
}

// readFPDUs returns the ULPDUs that arrive, up to a Terminate or the end.
func readFPDUs(t testing.TB, crc bool, c net.Conn) (ulpdus [][]byte, err error) {
	t.Helper()
	for {
		frame := make([]byte, 2)
		if _, err := io.ReadFull(c, frame); err != nil {
			return ulpdus, err
		}
		rest := make([]byte, (2+int(binary.BigEndian.Uint16(frame))+3)&^3-2+4)
		if _, err := io.ReadFull(c, rest); err != nil {
			return ulpdus, err
		}
		ulpdu, _ := takeFPDU(t, crc, append(frame, rest...))
		ulpdus = append(ulpdus, ulpdu)
		if len(ulpdu) >= 2 && ulpdu[1] == 0x47 {
			return ulpdus, nil
		}
	}
}

// leavesNothing returns a function that checks that there are as many goroutines and descriptors
// as now.
func leavesNothing(t testing.TB) (check func()) {
	t.Helper()
	count := func() (goroutines, descriptors int) {
		open, _ := os.ReadDir("/proc/self/fd") // 0 where there is no such thing
		return runtime.NumGoroutine(), len(open)
	}
	if ln, err := net.Listen("tcp", "127.0.0.1:0"); err == nil {
		ln.Close() // with the first socket the runtime opens descriptors of its own
	}
	goroutines, descriptors := count()
	return func() {
		t.Helper()
		var g, d int
		for end := time.Now().Add(time.Minute); ; runtime.Gosched() {
			if g, d = count(); g <= goroutines && d <= descriptors {
				return
			}
			if time.Now().After(end) {
				break
			}
		}
		t.Errorf("%d goroutines were %d, %d descriptors were %d", g, goroutines, d, descriptors)
	}
}

// heapBack returns a function that checks that the heap has grown by at most 1 MB, which covers the
// pools and what the tests leave. A queue pair that was not freed holds more than 4 KB, and a
// table has hundreds of them.
func heapBack(t testing.TB) (check func()) {
	t.Helper()
	live := func() int {
		runtime.GC()
		runtime.GC() // the contents of a sync.Pool survive one collection
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int(m.HeapAlloc)
	}
	before := live()
	return func() {
		t.Helper()
		assert.Less(t, live(), before+1<<20, "bytes on the heap")
	}
}

// checkTerminate checks the segment of a Terminate.
func checkTerminate(t testing.TB, ulpdu []byte, term [3]byte, bad []byte, headers int) {
	t.Helper()
	want := untagged(7, true, 0, 2, 1, 0, []byte{term[0]<<4 | term[1], term[2], 0, 0})
	if headers > 0 {
		want[20] = 0xC0
		if headers > 18 {
			want[20] = 0xE0
		}
		want = binary.BigEndian.AppendUint16(want, uint16(len(bad)))
		want = append(want, bad[:headers]...)
	}
	assert.Equal(t, want, ulpdu, "Terminate")
}

// checkEnd checks that nothing more arrives. If the victim had unread bytes, the kernel may have
// reset the connection.
func checkEnd(t testing.TB, peer net.Conn) {
	t.Helper()
	rest, err := io.ReadAll(peer)
	assert.Empty(t, rest)
	if err != nil {
		assert.ErrorIs(t, err, syscall.ECONNRESET)
	}
}

// TestFirstFPDUIsWrong: a violation in the first FPDU ends a responder, which may not have sent
// anything before.
func TestFirstFPDUIsWrong(t *testing.T) {
	for _, variant := range hostileVariants {
		defer leavesNothing(t)()
		v, peer := hostileTo(t, variant.crc, variant.stream)
		defer peer.Close()
		peer.Write(fpdu(variant.crc, untagged(3, true, 0, 0, 2, 0, []byte("x"))))
		o := v.outcome()
		assert.ErrorContains(t, o.err, "Send number 2, expected 1")
		v.untouched(t, 0, 0)
		v.q.Close()
		ulpdus, err := readFPDUs(t, variant.crc, peer)
		if err == nil {
			checkTerminate(t, ulpdus[0], [3]byte{1, 2, 3}, untagged(3, true, 0, 0, 2, 0, []byte("x")), 18)
		}
		peer.Close()
	}
}

// TestTerminateReceived: a Terminate ends both halves with what the peer said, and is not answered.
func TestTerminateReceived(t *testing.T) {
	for _, variant := range hostileVariants {
		for _, payload := range []string{"", "\x02", "\x12\x05\x00\x00", "\x12\x05\xC0\x00\x00\x12"} {
			check := leavesNothing(t)
			v, peer := hostileTo(t, variant.crc, variant.stream)
			stream := fpdu(variant.crc, untagged(3, true, 0, 0, 1, 0, []byte("before")))
			stream = append(stream, fpdu(variant.crc, untagged(7, true, 0, 2, 1, 0, []byte(payload)))...)
			stream = append(stream, fpdu(variant.crc, untagged(3, true, 0, 0, 2, 0, []byte("after")))...)
			peer.Write(stream)
			o := v.outcome()
			assert.Equal(t, []string{"before"}, o.messages)
			var terminated *rdma.TerminateError
			if assert.ErrorAs(t, o.err, &terminated) && len(payload) > 1 {
				assert.Equal(t, rdma.TerminateError{Layer: 1, Type: 2, Code: 5}, *terminated)
			}
			_, err := v.q.PostSend([]rdma.SendWR{{Header: []byte("x")}})
			assert.Equal(t, o.err, err)
			v.q.Close()
			checkEnd(t, peer)
			peer.Close()
			check()
		}
	}
}

// TestCutShort: an end of the stream between two messages differs from one inside a message.
func TestCutShort(t *testing.T) {
	send := untagged(3, true, 0, 0, 2, 0, []byte("whole"))
	for _, w := range []struct {
		name string
		tail func(crc bool) []byte // of the stream
		want error
	}{
		{"between two messages", func(crc bool) []byte { return nil }, io.EOF},
		{"in a length", func(crc bool) []byte { return fpdu(crc, send)[:1] }, io.ErrUnexpectedEOF},
		{"in a header", func(crc bool) []byte { return fpdu(crc, send)[:12] }, io.ErrUnexpectedEOF},
		{"in a CRC", func(crc bool) []byte { b := fpdu(crc, send); return b[:len(b)-1] }, io.ErrUnexpectedEOF},
		{"between two segments of a message", func(crc bool) []byte { return fpdu(crc, untagged(3, false, 0, 0, 2, 0, []byte("begin"))) }, io.ErrUnexpectedEOF},
		{"in the CRC of what is placed as it comes", func(crc bool) []byte {
			b := fpdu(crc, tagged(2, true, 1, 0, make([]byte, local1Len)))
			return b[:len(b)-1]
		}, io.ErrUnexpectedEOF},
		{"after an RDMA Write of nothing", func(crc bool) []byte { return fpdu(crc, tagged(0, true, 1, 0, nil)) }, io.EOF},
		{"in what is placed as it comes", func(crc bool) []byte { return fpdu(crc, tagged(2, true, 1, 0, make([]byte, local1Len)))[:1000] }, io.ErrUnexpectedEOF},
	} {
		for _, variant := range hostileVariants {
			t.Run(w.name+"/"+variant.name, func(t *testing.T) {
				defer leavesNothing(t)()
				v, peer := hostileTo(t, variant.crc, variant.stream)
				defer peer.Close()
				v.read(t)
				peer.Write(append(fpdu(variant.crc, untagged(3, true, 0, 0, 1, 0, []byte("before"))), w.tail(variant.crc)...))
				peer.CloseWrite()
				o := v.outcome()
				assert.Equal(t, w.want, o.err)
				assert.Equal(t, []string{"before"}, o.messages)
				assert.Empty(t, o.done)
				v.untouched(t, local1At, local1At+local1Len)
				v.q.Close()
			})
		}
	}
}

// TestInvalidatedWhileItIsPlaced: if a region is invalidated while a Write to it arrives, the next
// byte ends the queue pair and is not stored. The Terminate has the headers of that Write,
// whatever its payload looks like.
func TestInvalidatedWhileItIsPlaced(t *testing.T) {
	for _, variant := range hostileVariants {
		if variant.stream {
			continue // its Read holds the region until a byte comes
		}
		check := leavesNothing(t)
		v, peer := hostileTo(t, variant.crc, variant.stream)
		write := tagged(0, true, v.both, 0, bytes.Repeat([]byte{0, 60, 0xC1, 0x41}, 7000))
		stream := append(fpdu(variant.crc, tagged(0, true, 1, 0, nil)), fpdu(variant.crc, write)...)
		peer.Write(append(fpdu(variant.crc, untagged(3, true, 0, 0, 1, 0, []byte("before"))), stream[:64]...))
		var wcs [1]rdma.Completion
		n, err := v.q.Wait(wcs[:])
		require.NoError(t, err)
		require.Equal(t, 1, n)
		wcs[0].Buffer.Release()
		for !v.q.rx.place.active {
			_, err := v.q.Poll(wcs[:])
			require.NoError(t, err)
		}
		v.q.Invalidate(rdma.STag(v.both))
		v.was = slices.Clone(v.arena)
		peer.Write(stream[64:])
		o := v.outcome()
		assert.ErrorContains(t, o.err, "was invalidated")
		v.untouched(t, 0, 0)
		ulpdus, err := readFPDUs(t, variant.crc, peer)
		require.NoError(t, err)
		checkTerminate(t, ulpdus[0], [3]byte{1, 1, 0}, write, 14)
		v.q.Close()
		peer.Close()
		check()
	}
}

// TestTerminateAfterAFullStream: the Terminate arrives once the peer reads, although the sender
// was waiting for room when the violation was found.
func TestTerminateAfterAFullStream(t *testing.T) {
	for _, variant := range hostileVariants {
		t.Run(variant.name, func(t *testing.T) {
			defer leavesNothing(t)()
			v, peer := hostileTo(t, variant.crc, variant.stream)
			defer peer.Close()
			defer v.q.Close()
			peer.Write(fpdu(variant.crc, untagged(3, true, 0, 0, 1, 0, []byte("before"))))
			var wcs [1]rdma.Completion
			_, err := v.q.Wait(wcs[:])
			require.NoError(t, err)
			wcs[0].Buffer.Release()
			room := make(chan error, 1)
			go func() {
				wr := []rdma.SendWR{{Header: make([]byte, 64), Payload: make([]byte, 60000)}}
				var err error
				for ; err == nil; _, err = v.q.PostSend(wr) {
					if v.q.Busy() {
						wr[0].Payload = nil // to queue more than the stream accepts at a time
					}
				}
				for err == rdma.ErrNoRoom || err == nil {
					err = v.q.WaitRoom()
				}
				room <- err
			}()
			for waits := 0; waits < 1000; runtime.Gosched() {
				v.q.tx.Lock()
				if waits++; !v.q.tx.Parked {
					waits = 0
				}
				v.q.tx.Unlock()
			}
			bad := untagged(3, true, 0, 0, 7, 0, nil)
			peer.Write(fpdu(variant.crc, bad))
			o := v.outcome()
			assert.ErrorContains(t, o.err, "Send number 7, expected 2")
			ulpdus, err := readFPDUs(t, variant.crc, peer)
			require.NoError(t, err)
			checkTerminate(t, ulpdus[len(ulpdus)-1], [3]byte{1, 2, 3}, bad, 18)
			assert.Equal(t, o.err, <-room)
		})
	}
}

// TestSilentPeer: a peer that does not read does not keep the queue pair from closing.
func TestSilentPeer(t *testing.T) {
	for _, variant := range hostileVariants {
		for _, end := range []func(q *QueuePair) error{(*QueuePair).Close, (*QueuePair).Abort} {
			check := leavesNothing(t)
			v, peer := hostileTo(t, variant.crc, variant.stream)
			big, err := v.q.Register(make([]byte, 8<<20), rdma.RemoteRead)
			require.NoError(t, err)
			stream := fpdu(variant.crc, untagged(1, true, 0, 1, 1, 0, readRequestOf(1, 0, 8<<20, uint32(big.STag), 0)))
			peer.Write(append(stream, fpdu(variant.crc, untagged(3, true, 0, 0, 1, 0, []byte("x")))...))
			var wcs [1]rdma.Completion
			_, err = v.q.Wait(wcs[:])
			require.NoError(t, err)
			wcs[0].Buffer.Release()
			end(v.q)
			_, err = v.q.Wait(wcs[:])
			assert.Error(t, err)
			assert.False(t, errors.Is(err, io.EOF))
			peer.Close()
			check()
		}
	}
}
