package shmdir

import (
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// lingers sends a TCP socket whose last close blocks until release is called, and closes its own.
// The kernel must refuse it at the sender if it can.
func lingers(t *testing.T, to int) (release func()) {
	t.Helper()
	ln, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { ln.Close() })
	at := ln.Addr().(*net.TCPAddr)
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	require.NoError(t, unix.Connect(fd, &unix.SockaddrInet4{Port: at.Port, Addr: [4]byte(at.IP.To4())}))
	require.NoError(t, unix.SetNonblock(fd, true))
	for err == nil {
		_, err = unix.Write(fd, make([]byte, 1<<20))
	}
	require.Equal(t, unix.EAGAIN, err)
	require.NoError(t, unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1, Linger: 60}))
	err = unix.Sendmsg(to, []byte{1}, unix.UnixRights(fd), nil, unix.MSG_NOSIGNAL)
	if takesRights.Load() {
		require.NoError(t, err)
	} else {
		require.Equal(t, unix.EPERM, err)
		ln.Close() // nobody has accepted the connection, so that it is reset
	}
	unix.Close(fd)
	return func() { ln.Close() }
}

// TestCloseTakesNoDescriptor: a process that connects to an announcement does not hold up its end,
// if its connection has not been accepted by then.
func TestCloseTakesNoDescriptor(t *testing.T) {
	onEachKernel(t, func(t *testing.T) {
		d := opened(t)
		a := announced(t, d)
		n, err := d.visit(server, nil)
		require.NoError(t, err)
		release := lingers(t, n.fd)
		defer release()
		unix.Close(n.fd)
		begin := time.Now()
		require.NoError(t, a.Close())
		assert.Less(t, time.Since(begin), 20*time.Second)
		assert.Empty(t, files(t, d))
		release()
	})
}

// TestVisitWhileClosesBlock: a process that has taken a listener's name, and sends descriptors to those
// that visit it, blocks a bounded number of closes.
func TestVisitWhileClosesBlock(t *testing.T) {
	onEachKernel(t, func(t *testing.T) {
		d := opened(t)
		ln := socket(t, unix.SOCK_SEQPACKET)
		defer unix.Close(ln)
		require.NoError(t, d.bind(ln, addressFile(server), 8, false))
		n, err := d.visit(server, nil)
		require.NoError(t, err)
		came, _, err := unix.Accept(ln)
		require.NoError(t, err)
		defer unix.Close(came)
		release := lingers(t, came)
		defer release()
		discard(n.fd)
		if !takesRights.Load() {
			return
		}
		require.Eventually(t, func() bool { return blocked.Load() == 1 }, time.Minute, time.Millisecond)
		blocked.Add(mostBlocked - 1)
		n, err = d.visit(server, nil)
		blocked.Add(1 - mostBlocked)
		assert.ErrorIs(t, err, errBlocked)
		assert.Equal(t, -1, n.fd)
		release()
	})
}
