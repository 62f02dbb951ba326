package sdp

import (
	"io"
	"net"
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// distantPair is a queue pair whose peer's host may go without a word.
type distantPair struct{ *memPair }

func (p distantPair) Lost(err error) { p.end(err) }

// failingSocket is a TCP connection that ends as it is told.
type failingSocket struct {
	memSocket
	ends   chan error
	closed chan struct{}
}

func (s *failingSocket) Read([]byte) (int, error) {
	select {
	case err := <-s.ends:
		return 0, err
	case <-s.closed:
		return 0, net.ErrClosed
	}
}

func (s *failingSocket) Close() error { close(s.closed); return nil }

// TestKeepAliveUnderneath: when TCP's keepalive ends the connection underneath, the
// one above ends; when that ends in good order, nothing does, since the device
// tells.
func TestKeepAliveUnderneath(t *testing.T) {
	for _, end := range []struct {
		err  error
		lost bool
	}{
		{os.NewSyscallError("read", syscall.ETIMEDOUT), true},
		{os.NewSyscallError("read", syscall.EHOSTUNREACH), true},
		{os.NewSyscallError("read", syscall.ECONNRESET), true}, // the host has started again
		{io.EOF, false},
	} {
		t.Run(end.err.Error(), func(t *testing.T) {
			tcp := &failingSocket{ends: make(chan error), closed: make(chan struct{})}
			hello := ourHello()
			qp := newMemPair(t, recvBuffers)
			qp.ProvideReceive(recvBuffers, recvSize)
			c, err := newConn(tcp, distantPair{qp}, setup{device: "mem", decided: true, local: hello, peer: hello})
			require.NoError(t, err)
			tcp.ends <- &net.OpError{Op: "read", Err: end.err}
			if end.lost {
				_, err = c.Read(make([]byte, 1))
				assert.ErrorIs(t, err, end.err)
			} else {
				<-c.under
				_, err = c.Write([]byte("on"))
				assert.NoError(t, err)
			}
			c.Close()
		})
	}
}

// TestKeepAliveUnderneathEndsWithClose: who watches leaves with the connection.
func TestKeepAliveUnderneathEndsWithClose(t *testing.T) {
	tcp := &failingSocket{ends: make(chan error), closed: make(chan struct{})}
	hello := ourHello()
	qp := newMemPair(t, recvBuffers)
	qp.ProvideReceive(recvBuffers, recvSize)
	c, err := newConn(tcp, distantPair{qp}, setup{device: "mem", decided: true, local: hello, peer: hello})
	require.NoError(t, err)
	c.Close()
	<-c.under
}
