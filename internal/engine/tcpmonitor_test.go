package engine

import (
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/rdma"
)

// distantPair is a queue pair whose peer's host may go without a word.
type distantPair struct{ *memPair }

func (p distantPair) Lost(err error) { p.end(err) }

func (p distantPair) Limits() rdma.Limits {
	l := p.memPair.Limits()
	l.NeedsKeepalive = true
	return l
}

// failingSocket is a TCP connection that ends as it is told.
type failingSocket struct {
	memSocket
	ends   chan error // nil: a byte comes
	closed chan struct{}
}

func (s *failingSocket) Read([]byte) (int, error) {
	select {
	case err := <-s.ends:
		if err == nil {
			return 1, nil
		}
		return 0, err
	case <-s.closed:
		return 0, net.ErrClosed
	}
}

func (s *failingSocket) Close() error { close(s.closed); return nil }

// overDistant is a connection above a TCP connection that ends as it is told.
func overDistant(t *testing.T) (*Conn, *failingSocket) {
	tcp := &failingSocket{ends: make(chan error), closed: make(chan struct{})}
	hello := OurHello(0)
	qp := newMemPair(t, RecvBuffers)
	qp.ProvideReceive(RecvBuffers, recvSize)
	c, err := New(tcp, distantPair{qp}, Setup{Device: "mem", Decided: true, Local: hello, Peer: hello})
	require.NoError(t, err)
	return engineOf(t, c), tcp
}

// TestKeepAliveUnderneath: when TCP's keepalive ends the connection underneath, or
// the peer says something there, the one above ends.
func TestKeepAliveUnderneath(t *testing.T) {
	for _, end := range []struct{ comes, want error }{
		{os.NewSyscallError("read", syscall.ETIMEDOUT), syscall.ETIMEDOUT},
		{os.NewSyscallError("read", syscall.EHOSTUNREACH), syscall.EHOSTUNREACH},
		{os.NewSyscallError("read", syscall.ECONNRESET), syscall.ECONNRESET},     // the host has started again
		{os.NewSyscallError("read", syscall.ECONNREFUSED), syscall.ECONNREFUSED}, // a filter's word
		{nil, errMonitorData},
	} {
		t.Run(fmt.Sprint(end.comes), func(t *testing.T) {
			c, tcp := overDistant(t)
			defer c.Close()
			tcp.ends <- end.comes
			require.NoError(t, c.SetReadDeadline(time.Now().Add(soon)))
			_, err := c.Read(make([]byte, 1))
			assert.ErrorIs(t, err, end.want)
		})
	}
}

// TestGoesOnWithoutTCP: when the peer has ended the connection underneath, what it has
// sent may still come. While nothing does, the device is given something to find the
// host gone with.
func TestGoesOnWithoutTCP(t *testing.T) {
	c, tcp := overDistant(t)
	defer c.Close()
	qp := c.qp.(distantPair)
	said := func() uint32 {
		qp.mu.Lock()
		defer qp.mu.Unlock()
		return qp.said
	}
	c.tcpMonitor.quiet = time.Millisecond
	before := said()
	tcp.ends <- io.EOF
	require.Eventually(t, func() bool { return said() > before+2 }, soon, time.Millisecond)
	_, err := c.Write([]byte("on"))
	require.NoError(t, err)
	require.NoError(t, c.SetReadDeadline(time.Now().Add(20*time.Millisecond)))
	_, err = c.Read(make([]byte, 1))
	assert.ErrorIs(t, err, os.ErrDeadlineExceeded)

	require.NoError(t, c.SetReadDeadline(time.Time{}))
	qp.end(syscall.ETIMEDOUT) // which it has
	_, err = c.Read(make([]byte, 1))
	assert.ErrorIs(t, err, syscall.ETIMEDOUT)
	<-c.tcpMonitor.done
}

// TestDeadlineUnderneath: one that the program's own connection sets says nothing of
// the peer.
func TestDeadlineUnderneath(t *testing.T) {
	c, tcp := overDistant(t)
	defer c.Close()
	c.tcpMonitor.quiet = time.Millisecond
	for range 3 {
		tcp.ends <- os.ErrDeadlineExceeded
	}
	tcp.ends <- os.NewSyscallError("read", syscall.ETIMEDOUT)
	require.NoError(t, c.SetReadDeadline(time.Now().Add(soon)))
	_, err := c.Read(make([]byte, 1))
	assert.ErrorIs(t, err, syscall.ETIMEDOUT)
}

// TestKeepAliveUnderneathEndsWithClose: who watches leaves with the connection, also
// when the peer has left the one underneath.
func TestKeepAliveUnderneathEndsWithClose(t *testing.T) {
	for _, end := range []bool{false, true} {
		c, tcp := overDistant(t)
		c.tcpMonitor.quiet = time.Hour
		if end {
			tcp.ends <- io.EOF
		}
		closed := make(chan error, 1)
		go func() { closed <- c.Close() }()
		assert.NoError(t, await(t, closed, soon))
		<-c.tcpMonitor.done
	}
}
