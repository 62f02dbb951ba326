//go:build unix

package engine

import (
	"errors"
	"io"
	"net"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/wire"
)

var errUnexpected = errors.New("unexpected read")

// check does what the pools of go-redis and of MySQL's driver do before they use
// a connection again.
func check(c syscall.Conn) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var verdict error
	err = raw.Read(func(fd uintptr) bool {
		var b [1]byte
		switch n, err := syscall.Read(int(fd), b[:]); {
		case n == 0 && err == nil:
			verdict = io.EOF
		case n > 0:
			verdict = errUnexpected
		case err == syscall.EAGAIN || err == syscall.EWOULDBLOCK:
		default:
			verdict = err
		}
		return true
	})
	if err != nil {
		return err
	}
	return verdict
}

// TestLivenessCheckFindsWhatIsAdvertised: what an exchange has left over is unread,
// also while it is still with the peer.
func TestLivenessCheckFindsWhatIsAdvertised(t *testing.T) {
	c, s := zcopyPair(t, 1)
	for range 2 {
		done := make(chan error, 1)
		go func() {
			_, err := c.Write(random(100_000))
			done <- err
		}()
		_, err := io.ReadFull(s, make([]byte, 64)) // what rides along
		require.NoError(t, err)
		// A Read that had its bytes written into it may end before the rest is announced.
		left := 100_000 - 64
		assert.Eventually(t, func() bool {
			err := check(s)
			if err == errUnexpected {
				left-- // what check has read is gone
			}
			return err != nil
		}, soon, time.Millisecond)
		_, err = io.ReadFull(s, make([]byte, left))
		require.NoError(t, err)
		require.NoError(t, <-done)
		assert.NoError(t, check(s))
	}
}

func TestLivenessCheck(t *testing.T) {
	b, a := pair(t)
	assert.NoError(t, check(a))
	sameBytes(t, b, a, random(1000))
	assert.NoError(t, check(a), "what has been read leaves nothing")

	_, err := b.Write([]byte("x"))
	require.NoError(t, err)
	assert.Eventually(t, func() bool { return check(a) == errUnexpected }, soon, time.Millisecond)
	assert.NoError(t, check(a), "what check has read is gone")

	require.NoError(t, b.Close())
	assert.Eventually(t, func() bool { return check(a) == io.EOF }, soon, time.Millisecond)
	require.NoError(t, a.Close())
	assert.ErrorIs(t, check(a), net.ErrClosed)
}

// TestRawRead reads all that arrives in the callback of RawConn.Read, as gRPC does: each byte once,
// in parts of any size, with Reads in between, and the end.
func TestRawRead(t *testing.T) {
	for name, connected := range map[string]func() (c, s *Conn){
		"copied":     func() (c, s *Conn) { return pair(t) },
		"advertised": func() (c, s *Conn) { return zcopyPair(t, 1) },
	} {
		t.Run(name, func(t *testing.T) {
			a, b := connected()
			data := random(500_000)
			wrote := make(chan error, 1)
			go func() {
				rest := data
				for len(rest) > 0 {
					n := min(len(rest), 1+len(rest)%30_000)
					if _, err := a.Write(rest[:n]); err != nil {
						wrote <- err
						return
					}
					rest = rest[n:]
				}
				wrote <- a.CloseWrite()
			}()
			raw, err := b.SyscallConn()
			require.NoError(t, err)
			var got []byte
			for buf := make([]byte, 7000); ; {
				if len(got)%3 == 0 {
					n, err := b.Read(buf[:100])
					got = append(got, buf[:n]...)
					if err == io.EOF {
						break
					}
					require.NoError(t, err)
				}
				var n int
				var failed error
				require.NoError(t, raw.Read(func(fd uintptr) bool {
					n, failed = syscall.Read(int(fd), buf)
					return failed != syscall.EAGAIN
				}))
				require.NoError(t, failed)
				if n == 0 {
					break
				}
				got = append(got, buf[:n]...)
			}
			require.NoError(t, <-wrote)
			require.Equal(t, len(data), len(got))
			require.Equal(t, data, got)
			require.NoError(t, b.Close())
			require.ErrorIs(t, raw.Read(func(uintptr) bool { return true }), net.ErrClosed)
		})
	}
}

// TestLivenessCheckTakesALimitedAmount of what has arrived, however much that is.
func TestLivenessCheckTakesALimitedAmount(t *testing.T) {
	hello := OurHello(0)
	qp := newMemPair(t, RecvBuffers)
	qp.ProvideReceive(RecvBuffers, recvSize)
	up, err := New(memSocket{}, qp, Setup{Device: "mem", Decided: true, Local: hello, Peer: hello})
	require.NoError(t, err)
	c := engineOf(t, up)
	defer c.Close()
	const many = (pollRounds + 2) * len(completions{})
	c.mu.Lock()
	c.poll.claims++ // no other goroutine receives them, and a background poller that has begun ends
	for c.poll.leader != nobody {
		qp.Wake()
		c.poll.followReleasing()
	}
	for seq := range uint32(many) {
		m := wire.Message{Header: wire.Header{MID: wire.MIDData, Bufs: RecvBuffers, MSeq: seq + 1}}
		qp.deliver(m.AppendHeader(nil), 0)
	}
	before := c.poll.polled
	c.poll.receiveReadyReleasing()
	assert.NotEqual(t, before, c.poll.polled)
	assert.Equal(t, uint32(pollRounds), c.poll.polled-before)
	c.poll.claims--
	c.mu.Unlock()
	assert.NoError(t, check(c))
}

// TestRawReadLeavesNoDescriptor: Close closes the socket that Read shows, even while a callback
// uses it.
func TestRawReadLeavesNoDescriptor(t *testing.T) {
	for name, during := range map[string]bool{"Close after Read": false, "Close in the callback": true} {
		t.Run(name, func(t *testing.T) {
			b, a := pair(t)
			defer b.Close()
			raw, err := a.SyscallConn()
			require.NoError(t, err)
			shown := -1
			require.NoError(t, raw.Read(func(fd uintptr) bool {
				shown = int(fd)
				if during {
					assert.NoError(t, a.Close())
					_, err := syscall.Getsockname(shown)
					assert.NoError(t, err, "in use")
				}
				return true
			}))
			if !during {
				require.NoError(t, a.Close())
			}
			_, err = syscall.Getsockname(shown)
			assert.ErrorIs(t, err, syscall.EBADF)
			runtime.KeepAlive(raw)
		})
	}
}

func TestRawControlReachesTheSocket(t *testing.T) {
	b, a := pair(t)
	defer a.Close()
	defer b.Close()
	raw, err := a.SyscallConn()
	require.NoError(t, err)
	var socket bool
	require.NoError(t, raw.Control(func(fd uintptr) {
		_, err := syscall.Getsockname(int(fd))
		socket = err == nil
	}))
	assert.True(t, socket)
	assert.Error(t, raw.Write(func(uintptr) bool { return true }))
}
