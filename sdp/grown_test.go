package sdp

import (
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/rdma"
	"github.com/gosdp/gosdp/wire"
)

// growingPair is a queue pair in memory whose last message always grows, or never.
type growingPair struct {
	*memPair
	mu      sync.Mutex
	full    bool
	most    []int // SendWR.Most of the messages with payload
	sendErr error // what PostSend says
	bytes   uint64
	grown   int // how often
}

func (p *growingPair) PostSend(wrs []rdma.SendWR) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.sendErr != nil {
		return 0, p.sendErr
	}
	for _, wr := range wrs {
		if len(wr.Payload) > 0 {
			p.most = append(p.most, wr.Most)
			p.bytes += uint64(len(wr.Payload))
		}
	}
	return p.memPair.PostSend(wrs)
}

func (p *growingPair) Append(b []byte) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.full {
		return false
	}
	p.grown++
	p.bytes += uint64(len(b))
	return true
}

func (p *growingPair) Sent() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.bytes
}

// messages returns how many messages with payload were posted, and how often one has
// grown.
func (p *growingPair) messages() (posted, grown int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.most), p.grown
}

// hear has a message come, which acknowledges all that was sent.
func (p *growingPair) hear(seq uint32, m wire.Message) {
	p.memPair.mu.Lock()
	m.MSeq, m.MSeqAck, m.Bufs = seq, p.said, recvBuffers
	p.memPair.mu.Unlock()
	p.deliver(append(m.AppendHeader(nil), m.Payload...), 0)
}

// growing returns a connection on which small Writes are being appended.
func growing(t *testing.T) (*Conn, *growingPair) {
	t.Helper()
	qp := &growingPair{memPair: newMemPair(t, recvBuffers)}
	c := memConn(t, qp, true, -1, recvBuffers)
	t.Cleanup(func() { c.Close() })
	for range appendAfter + 3 {
		_, err := c.Write([]byte("x"))
		require.NoError(t, err)
	}
	posted, grown := qp.messages()
	require.Equal(t, appendAfter, posted)
	require.Equal(t, 3, grown)
	return c, qp
}

// TestWritesThatAreForbiddenDoNotGrow what was posted before, although a small Write
// looks at nothing else then.
func TestWritesThatAreForbiddenDoNotGrow(t *testing.T) {
	for _, v := range []struct {
		name   string
		forbid func(t *testing.T, c *Conn, qp *growingPair)
		want   error
	}{
		{"CloseWrite", func(t *testing.T, c *Conn, qp *growingPair) { require.NoError(t, c.CloseWrite()) }, syscall.EPIPE},
		{"a deadline in the past", func(t *testing.T, c *Conn, qp *growingPair) {
			require.NoError(t, c.SetWriteDeadline(time.Unix(1, 0)))
		}, os.ErrDeadlineExceeded},
		{"a deadline that passes", func(t *testing.T, c *Conn, qp *growingPair) {
			require.NoError(t, c.SetWriteDeadline(time.Now().Add(10*time.Millisecond)))
			require.Eventually(t, func() bool {
				c.mu.Lock()
				defer c.mu.Unlock()
				return c.write.passed()
			}, soon, time.Millisecond)
		}, os.ErrDeadlineExceeded},
		{"Close", func(t *testing.T, c *Conn, qp *growingPair) { require.NoError(t, c.Close()) }, net.ErrClosed},
		{"the end of the channel", func(t *testing.T, c *Conn, qp *growingPair) {
			qp.end(syscall.ECONNRESET)
			awaitOver(t, c)
		}, syscall.ECONNRESET},
		{"a violation", func(t *testing.T, c *Conn, qp *growingPair) {
			qp.deliver([]byte("what is no message"), 0)
			awaitOver(t, c)
		}, nil},
		{"an AbortConn", func(t *testing.T, c *Conn, qp *growingPair) {
			qp.hear(1, wire.Message{Header: wire.Header{MID: wire.MIDDisConn}})
			qp.hear(2, wire.Message{Header: wire.Header{MID: wire.MIDAbortConn}})
			awaitOver(t, c)
		}, syscall.EPIPE},
		{"a failed Write", func(t *testing.T, c *Conn, qp *growingPair) {
			qp.mu.Lock()
			qp.sendErr = syscall.EHOSTUNREACH
			qp.mu.Unlock()
			_, err := c.Write(make([]byte, 2*smallWrite))
			require.ErrorIs(t, err, syscall.EHOSTUNREACH)
		}, syscall.EHOSTUNREACH},
	} {
		t.Run(v.name, func(t *testing.T) {
			c, qp := growing(t)
			v.forbid(t, c, qp)
			_, before := qp.messages()
			_, err := c.Write([]byte("late"))
			assert.Error(t, err)
			if v.want != nil {
				assert.ErrorIs(t, err, v.want)
			}
			_, after := qp.messages()
			assert.Equal(t, before, after)
		})
	}
}

// awaitOver waits until the connection knows that nothing more comes.
func awaitOver(t *testing.T, c *Conn) {
	t.Helper()
	require.Eventually(t, func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.recvErr != nil
	}, soon, time.Millisecond)
}

// TestAnswersDoNotGrow: the Write after a Read is a message of its own, and so is each
// Write once the peer has taken part in zero copy.
func TestAnswersDoNotGrow(t *testing.T) {
	for _, v := range []struct {
		name  string
		first func(t *testing.T, c *Conn, qp *growingPair)
	}{
		{"a Read", func(t *testing.T, c *Conn, qp *growingPair) {
			qp.hear(1, wire.Message{Header: wire.Header{MID: wire.MIDData}, Payload: []byte("?")})
			_, err := c.Read(make([]byte, 8))
			require.NoError(t, err)
		}},
		{"a WriteTo", func(t *testing.T, c *Conn, qp *growingPair) {
			qp.hear(1, wire.Message{Header: wire.Header{MID: wire.MIDData}, Payload: []byte("?")})
			_, err := c.WriteTo(&shortWriter{})
			require.ErrorIs(t, err, io.ErrShortBuffer)
		}},
		{"what is said about zero copy", func(t *testing.T, c *Conn, qp *growingPair) {
			qp.hear(1, wire.Message{Header: wire.Header{MID: wire.MIDSrcAvailCancel}})
			require.Eventually(t, func() bool {
				c.mu.Lock()
				defer c.mu.Unlock()
				return c.session.Parts().ZSink != nil
			}, soon, time.Millisecond)
		}},
	} {
		t.Run(v.name, func(t *testing.T) {
			c, qp := growing(t)
			v.first(t, c, qp)
			posted, grown := qp.messages()
			_, err := c.Write([]byte("!"))
			require.NoError(t, err)
			after, same := qp.messages()
			assert.Equal(t, posted+1, after)
			assert.Equal(t, grown, same)
		})
	}
}

// TestOnlyTheEndOfAWriteGrows, or what another Write appends would lie in the middle of
// it: neither another message of the same batch, nor the last one that credit allows.
func TestOnlyTheEndOfAWriteGrows(t *testing.T) {
	const bufs = 12
	qp := &growingPair{memPair: newMemPair(t, bufs), full: true}
	qp.ProvideReceive(recvBuffers, recvSize)
	hello := ourHello(0)
	peer := hello
	peer.Bufs, peer.LocalRcvSz = bufs, 1024
	c, err := newConn(memSocket{}, qp, setup{device: "mem", dialled: true, decided: true, tuning: tuning{threshold: -1}, local: hello, peer: peer})
	require.NoError(t, err)
	defer c.Close()
	for range appendAfter {
		_, err := c.Write([]byte("x"))
		require.NoError(t, err)
	}
	before, _ := qp.messages()
	const messages = 8
	written := make(chan error, 1)
	go func() {
		_, err := c.Write(make([]byte, messages*c.session.Payload()-1))
		written <- err
	}()
	require.Eventually(t, func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.out.starved
	}, soon, time.Millisecond)
	some, _ := qp.messages()
	require.Greater(t, some, before+1)
	require.Less(t, some, before+messages)
	qp.hear(1, wire.Message{Header: wire.Header{MID: wire.MIDData}})
	require.NoError(t, await(t, written, soon))
	qp.mu.Lock()
	defer qp.mu.Unlock()
	require.Len(t, qp.most, before+messages)
	for _, most := range qp.most[before : before+messages-1] {
		assert.Zero(t, most)
	}
	assert.Equal(t, 1024, qp.most[before+messages-1])
}

// TestPartsOfOneCallDoNotGrow: a small Write of another goroutine must not come between them.
func TestPartsOfOneCallDoNotGrow(t *testing.T) {
	c, qp := growing(t)
	before, _ := qp.messages()
	v := net.Buffers{make([]byte, 100), make([]byte, copyBuffer/4), make([]byte, 100), make([]byte, 100)}
	_, err := c.WriteBuffers(&v)
	require.NoError(t, err)
	_, err = c.Write([]byte("x"))
	require.NoError(t, err)
	posted, _ := qp.messages()
	qp.mu.Lock()
	defer qp.mu.Unlock()
	require.Greater(t, posted, before+2)
	assert.Zero(t, qp.most[before], "of the first slice")
	assert.False(t, c.appends.more)
}
