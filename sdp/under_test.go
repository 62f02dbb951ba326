package sdp

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
)

// distantPair is a queue pair whose peer's host may go without a word.
type distantPair struct{ *memPair }

func (p distantPair) Lost(err error) { p.end(err) }

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
	hello := ourHello()
	qp := newMemPair(t, recvBuffers)
	qp.ProvideReceive(recvBuffers, recvSize)
	c, err := newConn(tcp, distantPair{qp}, setup{device: "mem", decided: true, local: hello, peer: hello})
	require.NoError(t, err)
	return c, tcp
}

// TestKeepAliveUnderneath: when TCP's keepalive ends the connection underneath, or
// the peer says something there, the one above ends. When it ends in good order, that
// goes on for a while, in which the device can tell of its own end.
func TestKeepAliveUnderneath(t *testing.T) {
	for _, end := range []struct{ comes, want error }{
		{os.NewSyscallError("read", syscall.ETIMEDOUT), syscall.ETIMEDOUT},
		{os.NewSyscallError("read", syscall.EHOSTUNREACH), syscall.EHOSTUNREACH},
		{os.NewSyscallError("read", syscall.ECONNRESET), syscall.ECONNRESET}, // the host has started again
		{nil, errUnderSpeaks},
		{io.EOF, syscall.ECONNRESET},
	} {
		t.Run(fmt.Sprint(end.comes), func(t *testing.T) {
			c, tcp := overDistant(t)
			defer c.Close()
			begin := time.Now()
			tcp.ends <- end.comes
			if end.comes == io.EOF {
				_, err := c.Write([]byte("on"))
				require.NoError(t, err)
			}
			require.NoError(t, c.SetReadDeadline(begin.Add(5*underTime)))
			_, err := c.Read(make([]byte, 1))
			assert.ErrorIs(t, err, end.want)
			assert.Equal(t, end.comes == io.EOF, time.Since(begin) >= underTime, "%v", time.Since(begin))
		})
	}
}

// TestKeepAliveUnderneathEndsWithClose: who watches leaves with the connection, also
// when the peer has left the one underneath.
func TestKeepAliveUnderneathEndsWithClose(t *testing.T) {
	for _, end := range []bool{false, true} {
		c, tcp := overDistant(t)
		if end {
			tcp.ends <- io.EOF
		}
		begin := time.Now()
		c.Close()
		assert.Less(t, time.Since(begin), underTime)
		<-c.under.done
	}
}
