package sdp

import (
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestFileOfAListener that this process itself accepts from, by system calls, as frameworks for
// sockets do. They get what the client has written, and nothing else, and the client waits for
// nobody. Once the program calls Accept, clients can move.
func TestFileOfAListener(t *testing.T) {
	testHandedOut(t, func(t *testing.T, l *Listener) int {
		f, err := l.File()
		require.NoError(t, err)
		t.Cleanup(func() { f.Close() })
		return int(f.Fd())
	})
}

// TestControlOfAListener is TestFileOfAListener for the descriptor that Control passes.
func TestControlOfAListener(t *testing.T) {
	testHandedOut(t, func(t *testing.T, l *Listener) (fd int) {
		raw, err := l.SyscallConn()
		require.NoError(t, err)
		var failed error
		require.NoError(t, raw.Control(func(own uintptr) { fd, failed = syscall.Dup(int(own)) }))
		require.NoError(t, failed)
		t.Cleanup(func() { syscall.Close(fd) })
		return fd
	})
}

func testHandedOut(t *testing.T, descriptor func(t *testing.T, l *Listener) int) {
	t.Setenv(devicesVariable, "")
	ln := acceptedOutside(t, descriptor)
	served := make(chan error, 1)
	l := ln.(*Listener)
	require.NoError(t, l.SetDeadline(time.Now().Add(-time.Second)))
	_, err := ln.Accept()
	require.ErrorContains(t, err, "timeout")
	require.NoError(t, l.SetDeadline(time.Time{}))
	go func() {
		c, err := ln.Accept()
		if err == nil {
			_, err = io.WriteString(c, "SDP")
			c.Close()
		}
		served <- err
	}()
	c, err := (&Dialer{Config: patient}).Dial("tcp", ln.Addr().String())
	require.NoError(t, err)
	defer c.Close()
	require.NoError(t, <-served)
	require.IsType(t, (*Conn)(nil), c)
	all, err := io.ReadAll(c)
	require.NoError(t, err)
	require.Equal(t, "SDP", string(all))
}

// acceptedOutside has three clients whose connections are accepted from the descriptor of a new
// listener. Nothing is accepted before Dial has returned.
func acceptedOutside(t *testing.T, descriptor func(t *testing.T, l *Listener) int) net.Listener {
	t.Helper()
	ln, err := patientListen("tcp")
	require.NoError(t, err)
	t.Cleanup(func() { ln.Close() })
	fd := descriptor(t, ln.(*Listener))
	require.NoError(t, syscall.SetNonblock(fd, false))
	for range 3 {
		c, err := (&Dialer{Config: patient}).Dial("tcp", ln.Addr().String())
		require.NoError(t, err)
		defer c.Close()
		_, err = c.Write([]byte("mine"))
		require.NoError(t, err)
		require.NoError(t, c.(*Conn).CloseWrite())
		s, _, err := syscall.Accept(fd)
		require.NoError(t, err)
		var got []byte
		b := make([]byte, 100)
		for n := 1; n > 0; got = append(got, b[:n]...) {
			n, err = syscall.Read(s, b)
			require.NoError(t, err)
		}
		syscall.Close(s)
		require.Equal(t, "mine", string(got))
	}
	return ln
}
