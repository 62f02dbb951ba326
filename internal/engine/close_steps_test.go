package engine

import (
	"cmp"
	"context"
	"io"
	"net"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/internal/observe"
	"github.com/gosdp/gosdp/rdma"
	"github.com/gosdp/gosdp/wire"
)

// TestCloseSaysDisConn after what was written (§8.2.1), also where the end of the
// channel would tell the peer as much.
func TestCloseSaysDisConn(t *testing.T) {
	t.Setenv(thresholdVariable, "-1")
	house := newHostileHouse(t)
	defer house.close()
	for _, side := range hostileSides {
		t.Run(side, func(t *testing.T) {
			p, c := hostileAs(t, side, house.ln)
			defer p.qp.Close()
			_, err := c.Write([]byte("last"))
			require.NoError(t, err)
			require.NoError(t, c.Close())
			p.hears(byte(wire.MIDDisConn))
			assert.Equal(t, 1, p.payloads)
		})
	}
}

// TestCloseWriteWaitsForTheWrite that has been let in, and will send: its bytes must not
// come after the DisConn.
func TestCloseWriteWaitsForTheWrite(t *testing.T) {
	t.Setenv(thresholdVariable, "-1")
	c, s := pair(t)
	c.out.mu.Lock() // another goroutine sends
	written, closed := make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := c.Write([]byte("hello"))
		written <- err
	}()
	require.Eventually(t, func() bool { return waitsIn("(*sender).post", "[sync.Mutex.Lock") }, soon, time.Millisecond, "the Write is let in")
	go func() { closed <- c.CloseWrite() }()
	require.Eventually(t, func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.phase.writeClosed()
	}, soon, time.Millisecond)
	require.Eventually(t, func() bool { return waitsIn("(*Conn).CloseWrite", "[sync.Mutex.Lock") }, soon, time.Millisecond)
	c.out.sendControl() // what is due by now
	c.out.unlock()
	require.NoError(t, await(t, written, soon))
	require.NoError(t, await(t, closed, soon))
	got, err := io.ReadAll(s)
	assert.NoError(t, err)
	assert.Equal(t, "hello", string(got))
}

// pollingPair calls during in its next Poll.
type pollingPair struct {
	*memPair
	during atomic.Pointer[func()]
}

func (p *pollingPair) Poll(wcs []rdma.Completion) (int, error) {
	if during := p.during.Swap(nil); during != nil {
		(*during)()
	}
	return p.memPair.Poll(wcs)
}

// TestCloseDuringHalfClose: CloseRead and CloseWrite look at what has arrived before they close
// anything. A Close that comes meanwhile closes the connection, and they do not.
func TestCloseDuringHalfClose(t *testing.T) {
	for name, half := range map[string]func(*Conn) error{"CloseRead": (*Conn).CloseRead, "CloseWrite": (*Conn).CloseWrite} {
		t.Run(name, func(t *testing.T) {
			qp := &pollingPair{memPair: newMemPair(t, RecvBuffers)}
			c := memConn(t, qp, true, -1, RecvBuffers)
			closed := make(chan error, 1)
			during := func() {
				go func() { closed <- c.Close() }()
				until(c, func() bool { return c.phase.closed() })
			}
			qp.during.Store(&during)
			checkError(t, half(c), "close", net.ErrClosed)
			require.NoError(t, await(t, closed, soon))
			c.mu.Lock()
			assert.Equal(t, concluded, c.phase)
			c.mu.Unlock()
		})
	}
}

// endingPair notes how its queue pair ends.
type endingPair struct {
	*memPair
	aborted atomic.Bool
}

func (p *endingPair) Abort() error {
	p.aborted.Store(true)
	return p.memPair.Abort()
}

// awaitsCredit waits until a closed connection leads and has no credit for its DisConn.
func awaitsCredit(c *Conn) {
	until(c, func() bool {
		return c.phase == stepping && c.poll.leader == parked && c.session.WritesEnded() && !c.session.EndSent()
	})
}

// TestCloseWaitsForCredit for its DisConn, on a device that cannot be asked whether it has finished.
func TestCloseWaitsForCredit(t *testing.T) {
	qp := &endingPair{memPair: newMemPair(t, 0)}
	c := memConn(t, qp, true, -1, 0)
	require.NoError(t, c.SetLinger(60))
	closed := make(chan error, 1)
	go func() { closed <- c.Close() }()
	awaitsCredit(c)
	credit := wire.Message{Header: wire.Header{MID: wire.MIDData, Bufs: RecvBuffers, MSeq: 1}}
	qp.deliver(credit.AppendHeader(nil), 0)
	require.NoError(t, await(t, closed, soon))
	assert.False(t, qp.aborted.Load())
	c.mu.Lock()
	defer c.mu.Unlock()
	assert.True(t, c.session.EndSent())
	assert.Equal(t, concluded, c.phase)
}

// TestFailureEndsTheWaitForCredit of a Close, which then resets the connection.
func TestFailureEndsTheWaitForCredit(t *testing.T) {
	for name, fail := range map[string]func(*Conn, *endingPair){
		"the device":     func(_ *Conn, qp *endingPair) { qp.end(syscall.ECONNRESET) },
		"too many close": func(c *Conn, _ *endingPair) { c.closer.drop() },
	} {
		t.Run(name, func(t *testing.T) {
			qp := &endingPair{memPair: newMemPair(t, 0)}
			c := memConn(t, qp, true, -1, 0)
			require.NoError(t, c.SetLinger(60))
			closed := make(chan error, 1)
			go func() { closed <- c.Close() }()
			awaitsCredit(c)
			fail(c, qp)
			require.NoError(t, await(t, closed, soon/2))
			assert.True(t, qp.aborted.Load())
			c.mu.Lock()
			defer c.mu.Unlock()
			assert.Equal(t, concluded, c.phase)
		})
	}
}

// TestReadAfterCloseRead: what has arrived can still be read, and nothing waits for more.
func TestReadAfterCloseRead(t *testing.T) {
	const size = 100_000
	for name, read := range map[string]func(c *Conn) (n int, err error){
		"Read": func(c *Conn) (int, error) { return readStream(c, 0, size+1, 10_000) },
		"WriteTo": func(c *Conn) (int, error) {
			n, err := c.WriteTo(io.Discard)
			return int(n), cmp.Or(err, io.EOF)
		},
	} {
		t.Run(name, func(t *testing.T) {
			c, s := pair(t)
			_, err := s.Write(streamAt(0, size/2))
			require.NoError(t, err)
			require.NoError(t, c.CloseRead())
			_, err = s.Write(streamAt(size/2, size/2)) // a kernel takes this too
			require.NoError(t, err)
			n, err := read(c)
			assert.Equal(t, io.EOF, err)
			assert.Equal(t, size, n)
			require.NoError(t, s.Close())
			n, err = read(c)
			assert.Equal(t, io.EOF, err)
			assert.Zero(t, n)
		})
	}
}

// TestWriteAfterThePeersClose: the first Write succeeds, as over TCP, although the library knows
// that nobody reads it, and none after it. Of a long one, a part counts as written. A Write of nothing
// does not count as the first.
func TestWriteAfterThePeersClose(t *testing.T) {
	type write = func(c *Conn, b []byte) (int, error)
	single := (*Conn).Write
	gathered := func(c *Conn, b []byte) (int, error) {
		n, err := c.WriteBuffers(&net.Buffers{b})
		return int(n), err
	}
	for _, v := range []struct {
		size  int
		write write
		op    string
	}{
		{1, single, "write"}, {lostMost, single, "write"}, {lostMost + 1, single, "write"},
		{1, gathered, "writev"}, {lostMost + 1, gathered, "writev"},
	} {
		size := v.size
		c, s := pair(t)
		require.NoError(t, s.Close())
		_, err := c.Read(make([]byte, 1))
		require.Equal(t, io.EOF, err)
		require.Eventually(t, func() bool {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.poll.receiveArrivedReleasing()
			return c.recvErr != nil
		}, soon, time.Millisecond)
		n, err := c.Write(nil)
		assert.Zero(t, n)
		assert.NoError(t, err)
		n, err = v.write(c, make([]byte, size))
		assert.Equal(t, min(size, lostMost), n)
		if size > lostMost {
			checkError(t, err, v.op, syscall.EPIPE)
		} else {
			assert.NoError(t, err)
		}
		for range 2 {
			n, err = c.Write(make([]byte, 1))
			checkError(t, err, "write", syscall.EPIPE)
			assert.Zero(t, n)
		}
		_, err = c.Write(nil)
		checkError(t, err, "write", syscall.EPIPE)
	}
}

// TestClosedConnectionsAreForgotten, and what they carried counts once.
func TestClosedConnectionsAreForgotten(t *testing.T) {
	before := observe.Totals().BcopySent.Bytes
	c, s := pair(t)
	_, err := c.Write(streamAt(0, 1000))
	require.NoError(t, err)
	_, err = readStream(s, 0, 1000, 1000)
	require.NoError(t, err)
	for _, end := range []*Conn{c, s} {
		require.NoError(t, end.Close())
	}
	short, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	require.NoError(t, WaitClosed(short))
	for _, end := range []*Conn{c, s} {
		assert.NotContains(t, observe.Open(), observe.Conn(end))
	}
	assert.Equal(t, before+1000, observe.Totals().BcopySent.Bytes)
}

// TestCreditIsDueAfterTheEnd: TCP's FIN is on the way when credit becomes due. Nothing is sent any
// more, so that the connection does not fail, and the peer gets everything.
func TestCreditIsDueAfterTheEnd(t *testing.T) {
	t.Setenv(thresholdVariable, "-1")
	c, s := pair(t)
	_, err := c.Write([]byte("everything"))
	require.NoError(t, err)
	require.NoError(t, c.CloseWrite())
	require.Eventually(t, func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.closer.finishLocked()
		return c.closer.finished
	}, soon, time.Millisecond)

	c.mu.Lock()
	c.session.Update()
	c.out.checkDueLocked()
	c.mu.Unlock()
	require.True(t, c.out.due.Load())
	c.out.sendDue()
	c.mu.Lock()
	sendErr := c.sendErr
	c.mu.Unlock()
	assert.NoError(t, sendErr)
	require.NoError(t, c.Close())
	got, err := io.ReadAll(s)
	assert.NoError(t, err)
	assert.Equal(t, "everything", string(got))
}
