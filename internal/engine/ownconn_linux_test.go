package engine

import (
	"context"
	"io"
	"net"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// ownConn is a TCP connection of the program's own type, each of whose methods below waits until
// nobody holds the lock of the connection over it.
type ownConn struct {
	*net.TCPConn
	over  atomic.Pointer[Conn]
	calls atomic.Int32 // of SyscallConn
}

func (c *ownConn) wait() {
	if over := c.over.Load(); over != nil {
		over.Stats()
	}
}

func (c *ownConn) LocalAddr() net.Addr {
	c.wait()
	return c.TCPConn.LocalAddr()
}

func (c *ownConn) RemoteAddr() net.Addr {
	c.wait()
	return c.TCPConn.RemoteAddr()
}

func (c *ownConn) SyscallConn() (syscall.RawConn, error) {
	c.wait()
	c.calls.Add(1)
	return c.TCPConn.SyscallConn()
}

// TestOwnConnIsCalledWithoutTheLock: a TCP connection of the program's own type may block, so its
// methods are called without the lock that every call needs.
func TestOwnConnIsCalledWithoutTheLock(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	ends := make(chan *ownConn, 1)
	served := make(chan net.Conn, 1)
	go func() {
		defer close(served)
		conn, err := ln.Accept()
		if !assert.NoError(t, err) {
			return
		}
		own := &ownConn{TCPConn: conn.(*net.TCPConn)}
		s, err := Server(context.Background(), own, new(Config))
		if assert.NoError(t, err) {
			ends <- own
			served <- s
		}
	}()
	c, err := engineDial(ln.Addr().String())
	require.NoError(t, err)
	defer c.Close()
	up, ok := <-served
	require.True(t, ok)
	own, s := <-ends, engineOf(t, up)
	own.over.Store(s)

	done := make(chan struct{})
	go func() {
		defer close(done)
		before := own.calls.Load()
		assert.NoError(t, engineOf(t, c).CloseWrite())
		_, err := s.Read(make([]byte, 1))
		assert.Equal(t, io.EOF, err)
		assert.Greater(t, own.calls.Load(), before, "the peer's end is acknowledged at once")
		assert.NoError(t, s.CloseRead())
		assert.NoError(t, s.Close())
		for _, err := range []error{s.CloseRead(), s.CloseWrite(), s.SetLinger(1), s.SetReadDeadline(time.Time{}), s.Close()} {
			assert.ErrorIs(t, err, net.ErrClosed)
		}
	}()
	select {
	case <-done:
	case <-time.After(soon):
		require.Fail(t, "a method of the connection holds the lock while it calls the program's type")
	}
}
