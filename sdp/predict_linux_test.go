package sdp

import (
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const predictSize = 1 << 20

// predictingPair returns a connection with the default configuration that uses zero copy for
// requests and responses.
func predictingPair(t *testing.T) (c, s *Conn) {
	t.Helper()
	if !mayReadPeers() {
		t.Skip("missing: permission to read a peer's memory, which Yama's ptrace_scope or a seccomp filter forbids")
	}
	t.Setenv(thresholdVariable, "")
	t.Setenv(devicesVariable, "shm")
	c, s = pair(t)
	require.True(t, c.predicts && s.predicts)
	require.NoError(t, c.SetDeadline(time.Time{}))
	require.NoError(t, s.SetDeadline(time.Time{}))
	return c, s
}

// exchange sends requests and responses of n bytes, and checks them.
func exchange(t *testing.T, c, s *Conn, times, n int) {
	t.Helper()
	served := make(chan error, 1)
	go func() {
		b := make([]byte, n)
		for range times {
			if _, err := io.ReadFull(s, b); err != nil {
				served <- err
				return
			}
			if _, err := s.Write(b); err != nil {
				served <- err
				return
			}
		}
		served <- nil
	}()
	b := make([]byte, n)
	for i := range times {
		_, err := c.Write(streamAt(i, n))
		require.NoError(t, err)
		_, err = io.ReadFull(c, b)
		require.NoError(t, err)
		require.NoError(t, checkStream(i, b))
	}
	require.NoError(t, <-served)
}

// TestStreamsAreCopied: the Writes of a stream are not advertised.
func TestStreamsAreCopied(t *testing.T) {
	c, s := predictingPair(t)
	const times = 40
	read := make(chan error, 1)
	go func() {
		_, err := io.CopyN(io.Discard, s, times*predictSize)
		read <- err
	}()
	for range times {
		_, err := c.Write(streamAt(0, predictSize))
		require.NoError(t, err)
	}
	require.NoError(t, <-read)
	assert.Zero(t, c.Stats().Advertised)
	assert.EqualValues(t, times*predictSize, c.Stats().BcopySent.Bytes)
}

// TestPredictedInVain: a predicted Write that the peer does not read falls back within
// milliseconds, and everything arrives.
func TestPredictedInVain(t *testing.T) {
	c, s := predictingPair(t)
	exchange(t, c, s, 2, predictSize)
	for range 5 {
		advertised := c.Stats().Advertised
		_, err := c.Write(streamAt(0, predictSize)) // returns although nothing is read
		require.NoError(t, err)
		b := make([]byte, predictSize)
		_, err = io.ReadFull(s, b)
		require.NoError(t, err)
		require.NoError(t, checkStream(0, b))
		_, err = s.Write([]byte("!"))
		require.NoError(t, err)
		_, err = io.ReadFull(c, b[:1])
		require.NoError(t, err)
		if c.Stats().Advertised == advertised {
			break
		}
	}
	assert.NotZero(t, c.Stats().Cancels)
	assert.Equal(t, time.Millisecond, c.zcopy.patience)
}
