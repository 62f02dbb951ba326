package engine

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/rdma"
	"github.com/gosdp/gosdp/test/watchdog"
	"github.com/gosdp/gosdp/wire"
)

// What FuzzMessages's input says, step by step: a byte, and what belongs to it.
const (
	stepMessage    = iota // length (2), message: stamped and counted as it should be
	stepRevoke            // the same, and it invalidates the newest region
	stepRaw               // the same, as it is
	stepWrite             // bytes (3): a Write begins, unless one is under way
	stepRead              // bytes (3): a Read begins, unless one is under way
	stepReadPast          // the deadline of Reads passes
	stepWritePast         // the deadline of Writes passes
	stepNoDeadline        // they have none any more
	stepCloseWrite
	stepCloseRead
	stepHold    // RDMA Reads and Writes do not complete by themselves
	stepRelease // one of them does
	stepFill    // the peer writes where it may
	stepKinds
)

// fuzzLongest is more than a Write or a Read has bytes.
const fuzzLongest = 200_000

// fuzzThresholds are from how many bytes on Writes are advertised.
var fuzzThresholds = []int{1, 4096, -1, 0}

// messagesVictim is a connection whose peer is the fuzzer, and whose program is
// at most one Write and one Read at a time.
type messagesVictim struct {
	t *testing.T
	*Conn
	qp *memPair

	mseq  uint32 // of the last message
	calls sync.WaitGroup
	reads chan struct{} // holds one while a Read is under way
	wrote chan struct{} // and a Write
	few   bool          // the peer has few buffers, and says so in each message
	lie   atomic.Bool   // the peer says to have written, which it may not have
}

// step carries out the first step of b and returns the rest.
func (v *messagesVictim) step(b []byte) []byte {
	kind := b[0] % stepKinds
	b = b[1:]
	number := func(bytes int) (n int) {
		for i := range min(bytes, len(b)) {
			n |= int(b[i]) << (8 * i)
		}
		b = b[min(bytes, len(b)):]
		return n
	}
	switch kind {
	case stepMessage, stepRevoke, stepRaw:
		n := min(number(2), len(b))
		v.message(b[:n:n], kind)
		b = b[n:]
	case stepWrite:
		v.write(number(3) % fuzzLongest)
	case stepRead:
		v.read(number(3) % fuzzLongest)
	case stepReadPast:
		v.SetReadDeadline(time.Unix(1, 0))
	case stepWritePast:
		v.SetWriteDeadline(time.Unix(1, 0))
	case stepNoDeadline:
		v.SetDeadline(time.Time{})
	case stepCloseWrite:
		v.calls.Go(func() { v.CloseWrite() }) // which waits for a Write
	case stepCloseRead:
		v.CloseRead()
	case stepHold:
		v.qp.mu.Lock()
		v.qp.hold = true
		v.qp.mu.Unlock()
	case stepRelease:
		v.qp.release()
	case stepFill:
		v.qp.fill()
	}
	return b
}

// message has one come.
func (v *messagesVictim) message(b []byte, kind byte) {
	b = append([]byte(nil), b...)
	var invalidates rdma.STag
	v.qp.mu.Lock()
	said, newest := v.qp.said, v.qp.newest
	v.qp.mu.Unlock()
	if kind != stepRaw && len(b) >= wire.HeaderLen {
		v.mseq++
		binary.BigEndian.PutUint32(b[4:], uint32(len(b)))
		binary.BigEndian.PutUint32(b[8:], v.mseq)
		binary.BigEndian.PutUint32(b[12:], said)
		if v.few {
			binary.BigEndian.PutUint16(b[2:], fewBuffers)
		}
		if kind == stepRevoke {
			invalidates = newest
		}
	}
	var m wire.Message
	if m.Parse(b) == nil {
		for i := range m.Payload {
			m.Payload[i] = 'p'
		}
		if m.MID == wire.MIDRdmaWrCompl {
			v.lie.Store(true)
		}
	}
	v.qp.deliver(b, invalidates)
}

func (v *messagesVictim) write(n int) {
	select {
	case v.wrote <- struct{}{}:
	default:
		return
	}
	v.calls.Go(func() {
		defer func() { <-v.wrote }()
		k, err := v.Write(make([]byte, n))
		if k < 0 || k > n || k < n && err == nil {
			v.t.Errorf("a Write of %d bytes returns %d and %v", n, k, err)
		}
		v.checkError(err)
		v.qp.backFrom(rdma.RemoteRead, rdma.OpWrite)
	})
}

func (v *messagesVictim) read(n int) {
	select {
	case v.reads <- struct{}{}:
	default:
		return
	}
	v.calls.Go(func() {
		defer func() { <-v.reads }()
		b := make([]byte, n)
		k, err := v.Read(b)
		if k < 0 || k > n || k == 0 && err == nil && n > 0 {
			v.t.Errorf("a Read of %d bytes returns %d and %v", n, k, err)
		}
		v.checkError(err)
		v.qp.backFrom(rdma.RemoteWrite, rdma.OpRead)
		for _, x := range b[:k] {
			if x == 0 && !v.lie.Load() {
				v.t.Error("a Read returns a byte that has not come")
				break
			}
		}
	})
}

// checkError checks that a call has failed with an error of the kinds there are.
func (v *messagesVictim) checkError(err error) {
	var op *net.OpError
	switch {
	case err == nil, err == io.EOF:
	case !errors.As(err, &op):
		v.t.Errorf("%v is no *net.OpError", err)
	}
}

// settle waits until the connection has taken in what there is, or a moment has
// passed.
func (v *messagesVictim) settle() {
	for range 1000 {
		if v.qp.idle() {
			return
		}
		v.mu.Lock()
		v.poll.startBackgroundLocked()
		v.mu.Unlock()
		runtime.Gosched()
	}
}

// FuzzMessages has a peer send any messages, in any state that two programs and
// their sessions can bring a connection into. The connection goes on or ends;
// every call returns, with its memory; a Read returns no byte that has not come;
// and what the library itself sends is well formed, in step and within credit.
func FuzzMessages(f *testing.F) {
	for how, s := range recordedSessions(f) {
		for i := range s {
			f.Add(byte(how), s[i])
			f.Add(byte(how)|fuzzDialled, s[i])
			f.Add(byte(how)|fuzzFew, s[i])
		}
	}
	for _, m := range []wire.Message{
		{Header: wire.Header{MID: wire.MIDSrcAvail, Bufs: 64}, Advert: wire.Advert{Len: 70_000, STag: 1}, Payload: []byte("x")},
		{Header: wire.Header{MID: wire.MIDSinkAvail, Bufs: 64}, Advert: wire.Advert{Len: 70_000, STag: 1}},
		{Header: wire.Header{MID: wire.MIDModeChange, Bufs: 64}, Mode: wire.ModePipelined},
		{Header: wire.Header{MID: wire.MIDSendSm, Bufs: 64}},
		{Header: wire.Header{MID: wire.MIDAbortConn, Bufs: 64}},
		{Header: wire.Header{MID: wire.MIDStepUp, Bufs: 64}},
		{Header: wire.Header{MID: wire.MIDChRcvBuf, Bufs: 64}, Size: 1 << 16},
	} {
		f.Add(byte(0), append([]byte{stepWrite, 0, 8, 1, stepRead, 0, 255, 1}, messageStep(stepMessage, m.AppendHeader(nil))...))
	}
	f.Add(byte(2)|fuzzFew, []byte{stepWrite, 0, 0, 2, stepReadPast, stepWritePast, stepCloseWrite, stepNoDeadline})
	f.Fuzz(func(t *testing.T, how byte, steps []byte) {
		defer watchdog.Start()()
		if len(steps) > 10_000 {
			return
		}
		bufs := uint16(RecvBuffers)
		if how&fuzzFew != 0 {
			bufs = fewBuffers
		}
		qp := newMemPair(t, bufs)
		v := &messagesVictim{
			t: t, qp: qp,
			Conn: memConn(t, qp, how&fuzzDialled != 0, fuzzThresholds[how&3], bufs), few: how&fuzzFew != 0,
			reads: make(chan struct{}, 1), wrote: make(chan struct{}, 1),
		}
		for n := 0; len(steps) > 0 && n < 100; n++ {
			steps = v.step(steps)
			v.settle()
		}
		if how&fuzzClose != fuzzClose {
			qp.end(syscall.ECONNRESET)
		}
		v.SetLinger(0)
		v.Close()
		v.calls.Wait()
		qp.mu.Lock()
		defer qp.mu.Unlock()
		if len(qp.regions) > 0 {
			t.Errorf("%d regions are left", len(qp.regions))
		}
	})
}

// The bits of how; the low two are the threshold.
const (
	fuzzDialled = 0x80
	fuzzFew     = 0x08 // the peer has few buffers
	fuzzClose   = 0x70 // all of it: the program ends the connection, and not the peer, which may take 500 ms
)

// fewBuffers are soon used up.
const fewBuffers = 5

// messageStep is a step that has a message come.
func messageStep(kind byte, b []byte) []byte {
	return append(binary.LittleEndian.AppendUint16([]byte{kind}, uint16(len(b))), b...)
}

// sessionEnd is an end of a session: its connection, and what FuzzMessages would
// do to be its program and its peer.
type sessionEnd struct {
	*Conn
	qp    *memPair
	mu    sync.Mutex
	steps []byte
}

func (e *sessionEnd) note(b []byte) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.steps = append(e.steps, b...)
}

// came notes a message. The payload is the fuzzer's to lengthen.
func (e *sessionEnd) came(b []byte) {
	var m wire.Message
	if m.Parse(b) == nil {
		b = b[:len(b)-len(m.Payload)+min(len(m.Payload), 8)]
	}
	e.note(messageStep(stepMessage, b))
}

func (e *sessionEnd) write(n int) {
	e.note([]byte{stepWrite, byte(n), byte(n >> 8), byte(n >> 16)})
	e.Write(make([]byte, n))
	e.qp.backFrom(rdma.RemoteRead, rdma.OpWrite)
}

func (e *sessionEnd) read(n int) (int, error) {
	e.note([]byte{stepRead, byte(n), byte(n >> 8), byte(n >> 16)})
	k, err := e.Read(make([]byte, n))
	e.qp.backFrom(rdma.RemoteWrite, rdma.OpRead)
	return k, err
}

// recordedSessions runs a session for each threshold, over two queue pairs in
// memory, and returns what came to either end.
func recordedSessions(t testing.TB) (all [][2][]byte) {
	t.Helper()
	for _, threshold := range fuzzThresholds {
		a, b := newMemPair(t, RecvBuffers), newMemPair(t, RecvBuffers)
		ends := [2]*sessionEnd{{qp: a}, {qp: b}}
		a.note, b.note = ends[0].came, ends[1].came
		a.peer, b.peer = b, a
		for i, e := range ends {
			e.Conn = memConn(t, e.qp, i == 0, threshold, RecvBuffers)
			asksEarly(e.Conn)
			require.NoError(t, e.SetDeadline(time.Now().Add(soon)))
		}
		const long = 70_000 // longer than any private buffer; and until both are Pipelined
		for _, size := range []int{1, 100, 5000, long, long, long, long, long, long, long, long} {
			for i, e := range ends {
				var reading sync.WaitGroup
				reading.Go(func() {
					for left := size; left > 0; {
						n, err := ends[1-i].read(max(left, long))
						if err != nil {
							t.Error(err)
							return
						}
						left -= n
					}
				})
				require.Eventually(t, ends[1-i].qp.idle, soon, 100*time.Microsecond, "the Read waits")
				e.write(size)
				reading.Wait()
			}
		}
		// A Write that nobody takes up, a Read that nothing comes for.
		ends[0].write(long)
		for left := long; left > 0; {
			n, err := ends[1].read(left)
			require.NoError(t, err)
			left -= n
		}
		require.NoError(t, ends[0].SetReadDeadline(time.Now().Add(10*time.Millisecond)))
		_, err := ends[0].read(long)
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		ends[0].note([]byte{stepReadPast})
		require.NoError(t, ends[0].SetReadDeadline(time.Now().Add(soon)))
		for _, e := range ends {
			e.note([]byte{stepCloseWrite})
			require.NoError(t, e.CloseWrite())
		}
		for _, e := range ends {
			_, err := e.read(long)
			require.Equal(t, io.EOF, err)
			e.Close()
		}
		all = append(all, [2][]byte{ends[0].steps, ends[1].steps})
	}
	return all
}

// TestRecordedSessions keeps the seeds good: what is rare comes in them.
func TestRecordedSessions(t *testing.T) {
	seen := make(map[wire.MID]bool)
	for _, s := range recordedSessions(t) {
		for _, b := range s {
			for len(b) > 0 {
				kind, n := b[0], 0
				b = b[1:]
				switch kind {
				case stepMessage:
					n = 2 + int(binary.LittleEndian.Uint16(b))
					seen[wire.MID(b[2])] = true
				case stepWrite, stepRead:
					n = 3
				}
				b = b[n:]
			}
		}
	}
	for _, m := range []wire.MID{
		wire.MIDData, wire.MIDDisConn, wire.MIDSrcAvail, wire.MIDRdmaRdCompl, wire.MIDSinkAvail, wire.MIDRdmaWrCompl,
		wire.MIDModeChange, wire.MIDSrcAvailCancel, wire.MIDChRcvBuf, wire.MIDChRcvBufAck,
	} {
		require.True(t, seen[m], "a session has %v", m)
	}
}
