package stream

import (
	"errors"
	"io"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// unvisited keeps the monitor from a connection, as if its process were stopped.
func unvisited(c *Conn) {
	monitor.mu.Lock()
	delete(monitor.conns, c)
	monitor.mu.Unlock()
}

// TestViolationEndsAWrite: if a Read finds that the peer breaks the protocol, a Write that waits for room ends, although the
// peer does nothing any more.
func TestViolationEndsAWrite(t *testing.T) {
	a, b := linkedPair(t)
	move(t, a, b)
	unvisited(b)
	b.wmu.Lock()
	b.rmu.Lock()
	defer b.rmu.Unlock()
	defer b.wmu.Unlock()
	l := a.linked.Load()
	written := make(chan error)
	go func() {
		_, err := a.Write(make([]byte, 32<<20))
		written <- err
	}()
	for !l.writer.ring.Sleeps() {
		runtime.Gosched()
	}
	l.violated(errors.New("impossible position"))
	require.ErrorIs(t, <-written, unix.ECONNRESET)
	read := make(chan error)
	go func() {
		_, err := a.Read(make([]byte, 1))
		read <- err
	}()
	assert.ErrorIs(t, <-read, unix.ECONNRESET)
	assert.EqualError(t, a.Violation(), "impossible position")
}

// TestPeerDiesWithUnreadBytes: the kernel closes what a process has that is killed. If that has not read everything, it is a
// reset, which one call returns.
func TestPeerDiesWithUnreadBytes(t *testing.T) {
	for _, unread := range []bool{false, true} {
		a, b := linkedPair(t)
		move(t, a, b)
		unvisited(b)
		if unread {
			_, err := a.Write([]byte("request"))
			require.NoError(t, err)
		}
		require.NoError(t, b.tcp.Close())
		b.linked.Load().bell.Close()
		if unread {
			_, err := a.Read(make([]byte, 1))
			require.ErrorIs(t, err, unix.ECONNRESET)
			_, err = a.Write([]byte("x"))
			require.ErrorIs(t, err, unix.EPIPE)
		}
		_, err := a.Read(make([]byte, 1))
		require.Equal(t, io.EOF, err)
	}
}

// TestControlWrites: what the callback of Control writes comes after what was written before, and before what follows.
func TestControlWrites(t *testing.T) {
	a, b := linkedPair(t)
	move(t, a, b)
	got := make(chan string)
	go func() {
		all := make([]byte, 3)
		io.ReadFull(b, all)
		got <- string(all)
	}()
	_, err := a.Write([]byte("A"))
	require.NoError(t, err)
	raw, err := a.SyscallConn()
	require.NoError(t, err)
	require.NoError(t, raw.Control(func(fd uintptr) {
		_, err := unix.Write(int(fd), []byte("B"))
		assert.NoError(t, err)
	}))
	_, err = a.Write([]byte("C"))
	require.NoError(t, err)
	assert.Equal(t, "ABC", <-got)
}
