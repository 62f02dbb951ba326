//go:build unix

package sdp

import (
	"errors"
	"io"
	"net"
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
		assert.Eventually(t, func() bool { return check(s) != nil }, 5*time.Second, time.Millisecond)
		_, err = io.ReadFull(s, make([]byte, 100_000-64))
		require.NoError(t, err)
		require.NoError(t, <-done)
		assert.NoError(t, check(s))
	}
}

func TestLivenessCheck(t *testing.T) {
	a, b := methodPair(t, "sdp")
	assert.NoError(t, check(a))
	sameBytes(t, b, a, random(1000))
	assert.NoError(t, check(a), "what has been read leaves nothing")

	_, err := b.Write([]byte("x"))
	require.NoError(t, err)
	one := make([]byte, 1)
	assert.Eventually(t, func() bool { return check(a) == errUnexpected }, 5*time.Second, time.Millisecond)
	_, err = a.Read(one)
	assert.NoError(t, err)
	assert.NoError(t, check(a))

	require.NoError(t, b.Close())
	assert.Eventually(t, func() bool { return check(a) == io.EOF }, 5*time.Second, time.Millisecond)
	require.NoError(t, a.Close())
	assert.ErrorIs(t, check(a), net.ErrClosed)
}

// TestLivenessCheckTakesALimitedAmount of what has arrived, however much that is.
func TestLivenessCheckTakesALimitedAmount(t *testing.T) {
	hello := ourHello(0)
	qp := newMemPair(t, recvBuffers)
	qp.ProvideReceive(recvBuffers, recvSize)
	c, err := newConn(memSocket{}, qp, setup{device: "mem", decided: true, local: hello, peer: hello})
	require.NoError(t, err)
	defer c.Close()
	const many = (pollRounds + 2) * len(completions{})
	c.mu.Lock() // no other goroutine receives them
	for seq := range uint32(many) {
		m := wire.Message{Header: wire.Header{MID: wire.MIDData, Bufs: recvBuffers, MSeq: seq + 1}}
		qp.deliver(m.AppendHeader(nil), 0)
	}
	before := c.poll.polled
	c.poll.receiveReadyLocked()
	assert.NotEqual(t, before, c.poll.polled)
	assert.Equal(t, uint32(pollRounds), c.poll.polled-before)
	c.mu.Unlock()
	assert.NoError(t, check(c))
}

func TestRawControlReachesTheSocket(t *testing.T) {
	a, b := methodPair(t, "sdp")
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
