package iwarp

import (
	"bytes"
	"errors"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/rdma"
	"github.com/gosdp/gosdp/rdma/iwarp/mpa"
)

// TestQueueDoesNotKeepWhatWasSent: a peer that reads as fast as this end answers never empties the queue.
func TestQueueDoesNotKeepWhatWasSent(t *testing.T) {
	tx := &sender{}
	for i := range 10_000 {
		tx.out = append(tx.spareLocked(), bytes.Repeat([]byte{byte(i)}, 100)...)
		if i > 0 {
			assert.Equal(t, byte(i-1), tx.out[tx.outHead])
			tx.outHead += 100
		}
	}
	assert.Equal(t, 100, tx.queuedLocked())
	assert.Less(t, cap(tx.out), 2*outLen)
}

// deaf is a transport that a reset has ended, which only write knows so far.
type deaf struct{ script }

func (t *deaf) write([][]byte) (int, error) { return 0, syscall.ECONNRESET }

// TestReadThatCannotBeSent is outstanding until Poll has found the end, because its Response may have
// arrived before the reset.
func TestReadThatCannotBeSent(t *testing.T) {
	q := &QueuePair{p: params{Params: mpa.Params{IRD: 4, ORD: 2}, maxULPDU: mpa.SoftwareULPDU}, t: &deaf{}}
	q.rx.q = q
	require.NoError(t, q.PostRead(rdma.ReadWR{Local: make([]byte, 10), STag: 1}))
	require.ErrorIs(t, q.sendError(), syscall.ECONNRESET)
	n, err := q.Poll(make([]rdma.Completion, 1))
	assert.Zero(t, n)
	assert.ErrorIs(t, err, syscall.ECONNRESET, "a kernel reports a reset once")
}

// TestWakeUpIsForBoth of the goroutines that may wait for a stream: one in settle, one in waitWrite.
func TestWakeUpIsForBoth(t *testing.T) {
	near, far := net.Pipe() // of which nobody reads the other end
	defer far.Close()
	s := newStreamTransport(near)
	defer s.close()
	_, err := s.write([][]byte{make([]byte, streamBuffer)})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.writing > 0
	}, time.Minute, time.Millisecond/10)
	n, err := s.write([][]byte{make([]byte, streamBuffer)}) // beside what is being written
	require.NoError(t, err)
	require.Equal(t, streamBuffer, n)
	for range 50 {
		over := make(chan error, 2)
		go func() { over <- s.settle() }()
		go func() { over <- s.waitWrite(func() bool { return false }) }()
		require.Eventually(t, func() bool {
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.cond.Waited()
		}, time.Minute, time.Millisecond/10)
		s.wakeWrite()
		for range 2 {
			select {
			case err := <-over:
				require.Equal(t, errWoken, err)
			case <-time.After(time.Minute):
				t.Fatal("one of them did not hear it")
			}
		}
	}
}

// slowHalf is a connection whose Writes and CloseWrite wait for a permission each, as those of TLS do
// while the peer does not read.
type slowHalf struct {
	net.Conn
	permission chan struct{}
	calls      chan string
}

func (c *slowHalf) Write(b []byte) (int, error) {
	c.calls <- "Write"
	<-c.permission
	return len(b), nil
}

func (c *slowHalf) CloseWrite() error {
	c.calls <- "CloseWrite"
	<-c.permission
	return nil
}

// TestEndOfAStream follows what was written, and nobody waits for it.
func TestEndOfAStream(t *testing.T) {
	near, far := net.Pipe()
	defer far.Close()
	c := &slowHalf{Conn: near, permission: make(chan struct{}), calls: make(chan string, 10)}
	s := newStreamTransport(c)
	_, err := s.write([][]byte{{1}})
	require.NoError(t, err)
	require.Equal(t, "Write", <-c.calls)
	_, err = s.write([][]byte{{2}})
	require.NoError(t, err)
	s.closeWrite()
	for _, next := range []string{"Write", "CloseWrite"} {
		c.permission <- struct{}{}
		require.Equal(t, next, <-c.calls)
	}
	total, inProcess := s.unsent()
	assert.Equal(t, []int{1, 1}, []int{total, inProcess}, "its end is not sent")
	close(c.permission)
	require.Eventually(t, func() bool { total, _ := s.unsent(); return total == 0 }, time.Minute, time.Millisecond/10)
	require.NoError(t, s.close())
	s.closeWrite()
	assert.Empty(t, c.calls)
}

// multiplexed is a stream whose timeouts do not wrap os.ErrDeadlineExceeded.
type multiplexed struct{ net.Conn }

type timeout struct{ error }

func (timeout) Timeout() bool   { return true }
func (timeout) Temporary() bool { return true }

func (c multiplexed) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if err != nil {
		err = timeout{errors.New("the multiplexer's own")}
	}
	return n, err
}

// room takes what is read.
type room struct{}

func (room) space() (first, second []byte) { return nil, make([]byte, 10) }
func (room) got(int)                       {}
func (room) parking()                      {}

// TestTimeouts of a stream end no read.
func TestTimeouts(t *testing.T) {
	near, far := net.Pipe()
	defer far.Close()
	s := newStreamTransport(multiplexed{near})
	defer s.close()
	n, err := s.read(room{}, false)
	assert.Zero(t, n)
	assert.NoError(t, err, "nothing has arrived")
	s.wakeRead()
	_, err = s.read(room{}, true)
	assert.Equal(t, errWoken, err)

	assert.True(t, isTimeout(os.ErrDeadlineExceeded))
	assert.False(t, isTimeout(&net.OpError{Op: "read", Err: syscall.ETIMEDOUT}), "the connection has ended")
}
