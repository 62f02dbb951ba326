package sdp

import (
	"io"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/rdma"
	"github.com/gosdp/gosdp/wire"
)

// reportedPair is a queue pair in memory that is told what the program has read, and not
// after its end.
type reportedPair struct {
	*memPair
	mu    sync.Mutex
	read  int
	ended bool
}

var _ rdma.ReadReporter = (*reportedPair)(nil)

func (p *reportedPair) ReportRead(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	assert.False(p.t, p.ended, "%d bytes reported after the end", n)
	p.read += n
}

func (p *reportedPair) Close() error {
	p.mu.Lock()
	p.ended = true
	p.mu.Unlock()
	return p.memPair.Close()
}

func (p *reportedPair) Abort() error { return p.Close() }

func (p *reportedPair) reported() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.read
}

// reporting returns a connection to which 100 bytes have come.
func reporting(t *testing.T) (*Conn, *reportedPair) {
	t.Helper()
	qp := &reportedPair{memPair: newMemPair(t, recvBuffers)}
	c := memConn(t, qp, true, -1, recvBuffers)
	t.Cleanup(func() { c.Close() })
	m := wire.Message{Header: wire.Header{MID: wire.MIDData, Bufs: recvBuffers, MSeq: 1}, Payload: streamAt(0, 100)}
	qp.deliver(append(m.AppendHeader(nil), m.Payload...), 0)
	return c, qp
}

// TestWhatIsReadIsReported, and what WriteTo has taken and its writer has not is not read.
func TestWhatIsReadIsReported(t *testing.T) {
	c, qp := reporting(t)
	_, err := io.ReadFull(c, make([]byte, 10))
	require.NoError(t, err)
	assert.Equal(t, 10, qp.reported())
	n, err := c.WriteTo(&shortWriter{room: 30})
	require.ErrorIs(t, err, io.ErrShortBuffer)
	require.EqualValues(t, 30, n)
	assert.Equal(t, 40, qp.reported())
	_, err = io.ReadFull(c, make([]byte, 60))
	require.NoError(t, err)
	assert.Equal(t, 100, qp.reported())
}

// failingWriter fails when it is let go.
type failingWriter struct{ in, out chan struct{} }

func (w *failingWriter) Write([]byte) (int, error) {
	close(w.in)
	<-w.out
	return 0, io.ErrShortWrite
}

// TestNothingIsReportedAfterTheEnd, because the device's memory has gone: not what a
// WriteTo gives back after Close, and not what is read after a violation.
func TestNothingIsReportedAfterTheEnd(t *testing.T) {
	t.Run("Close", func(t *testing.T) {
		c, _ := reporting(t)
		w := &failingWriter{in: make(chan struct{}), out: make(chan struct{})}
		copied := make(chan error, 1)
		go func() {
			_, err := c.WriteTo(w)
			copied <- err
		}()
		<-w.in
		require.NoError(t, c.Close())
		close(w.out)
		assert.ErrorIs(t, await(t, copied, soon), io.ErrShortWrite)
	})
	t.Run("a violation", func(t *testing.T) {
		c, qp := reporting(t)
		qp.deliver([]byte("what is no message"), 0)
		awaitOver(t, c)
		c.mu.Lock()
		c.awaitWorkersLocked() // for the one that drops the channel
		c.mu.Unlock()
		b := make([]byte, 200)
		n, err := c.Read(b)
		assert.NoError(t, err)
		assert.Equal(t, 100, n)
		assert.Zero(t, qp.reported())
	})
}
