package stream

import (
	"io"
	"net"
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// endings are how an end may finish. Each is compared with TCP.
var endings = map[string]func(c *Conn){
	"close":       func(c *Conn) { c.Close() },
	"close write": func(c *Conn) { c.CloseWrite() },
	"linger 0":    func(c *Conn) { c.SetLinger(0); c.Close() },
	"unread":      func(c *Conn) { c.Close() }, // with bytes for it
}

// TestEndings: what the other end sees is what it sees over TCP, wherever the connection is.
func TestEndings(t *testing.T) {
	for name, end := range endings {
		see := func(how func(a, b *Conn)) (saw []string) {
			a, b := tcpPair(t)
			how(a, b)
			if name == "unread" {
				_, err := b.Write([]byte("nobody reads this"))
				require.NoError(t, err)
				await(t, a)
			}
			_, err := a.Write([]byte("last words"))
			require.NoError(t, err)
			end(a)
			buf := make([]byte, 100)
			for range 3 {
				n, err := b.Read(buf)
				saw = append(saw, string(buf[:n])+" "+why(err))
			}
			for range 2 {
				b.Visit()
				_, err := b.Write([]byte("x"))
				saw = append(saw, why(err))
			}
			_, err = a.Write([]byte("y"))
			saw = append(saw, why(err))
			_, err = a.Read(buf)
			return append(saw, why(err))
		}
		want := see(func(a, b *Conn) {})
		for where, how := range map[string]func(a, b *Conn){
			"linked": func(a, b *Conn) { attach(t, a, b) },
			"moved":  func(a, b *Conn) { attach(t, a, b); move(t, a, b) },
			"home":   func(a, b *Conn) { attach(t, a, b); move(t, a, b); bringHome(t, a, b) },
		} {
			assert.Equal(t, want, see(how), "%s, %s", name, where)
		}
	}
}

func why(err error) string {
	for _, e := range []error{io.EOF, net.ErrClosed, os.ErrDeadlineExceeded, syscall.ECONNRESET, syscall.EPIPE} {
		if err == e {
			return e.Error()
		}
		if op, ok := err.(*net.OpError); ok && (op.Err == e || is(op.Err, e)) {
			return op.Op + ": " + op.Err.Error()
		}
	}
	if err != nil {
		return "? " + err.Error()
	}
	return "nil"
}

func is(err, target error) bool {
	s, ok := err.(*os.SyscallError)
	return ok && s.Err == target
}

// die ends a connection as the end of its process does.
func die(c *Conn) {
	if l := c.linked.Load(); l != nil {
		l.bell.Close()
	}
	c.tcp.Close()
}

// TestPeerDiesAfterWriting: what a peer has written before its process ended arrives before the end, also if a visit notices
// first, and a look at the descriptor does not hang.
func TestPeerDiesAfterWriting(t *testing.T) {
	for _, visited := range []bool{false, true} {
		a, b := linkedPair(t)
		move(t, a, b)
		_, err := a.Write([]byte("last words"))
		require.NoError(t, err)
		die(a)
		if visited {
			b.Visit()
			b.Visit()
		}
		all, err := io.ReadAll(b)
		assert.NoError(t, err)
		assert.Equal(t, "last words", string(all))
	}
	a, b := linkedPair(t)
	move(t, a, b)
	_, err := a.Write([]byte("last words"))
	require.NoError(t, err)
	die(a)
	raw, err := b.SyscallConn()
	require.NoError(t, err)
	assert.NoError(t, raw.Read(func(fd uintptr) bool {
		unix.Read(int(fd), make([]byte, 1))
		return true
	}))
	assert.NoError(t, b.Close())
}

// movedAhead returns a pair whose writer a has moved one byte, "1", into the ring, which b has not entered.
func movedAhead(t *testing.T) (a, b *Conn) {
	t.Helper()
	a, b = linkedPair(t)
	say(t, a, b, "0") // b consents
	_, err := a.Write([]byte("1"))
	require.NoError(t, err)
	require.Equal(t, inRing, a.linked.Load().writer.at())
	require.NotEqual(t, inRing, b.linked.Load().reader.at())
	return a, b
}

// TestResetAtTheMove: a reset that a Read finds when it enters the ring is reported after the ring's bytes.
func TestResetAtTheMove(t *testing.T) {
	a, b := movedAhead(t)
	require.NoError(t, a.SetLinger(0))
	require.NoError(t, a.Close())
	buf := make([]byte, 10)
	n, err := b.Read(buf)
	require.NoError(t, err)
	assert.Equal(t, "1", string(buf[:n]))
	_, err = b.Read(buf)
	assert.Equal(t, "read: read: connection reset by peer", why(err))
}

// TestCloseBeforeEntering: Close resets a connection with bytes that are unread in a ring which no Read has entered.
func TestCloseBeforeEntering(t *testing.T) {
	a, b := movedAhead(t)
	require.NoError(t, b.Close())
	_, err := a.Read(make([]byte, 1))
	assert.Equal(t, "read: read: connection reset by peer", why(err))
}
