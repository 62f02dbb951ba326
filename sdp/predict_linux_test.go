package sdp

import (
	"io"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
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

// predicted calls use with a predictingPair, which it returns. use returns the ends none of whose Writes was
// fetched. A busy machine may wake a reader later than predictedTime, and after failsMatter withdrawn
// advertisements an end copies. If that happened to all that use returned, predicted begins again, four times at most.
func predicted(t *testing.T, use func(c, s *Conn) (missed []*Conn)) (c, s *Conn) {
	t.Helper()
	for again := 4; ; again-- {
		c, s = predictingPair(t)
		missed := use(c, s)
		blameless := slices.ContainsFunc(missed, func(c *Conn) bool { return c.Stats().Cancels < 2 })
		if len(missed) == 0 || blameless || again == 0 {
			return c, s
		}
		t.Logf("withdrawn: %d and %d", c.Stats().Cancels, s.Stats().Cancels)
		c.Close()
		s.Close()
	}
}

// copied returns those of the ends that have sent nothing without a copy.
func copied(ends ...*Conn) []*Conn {
	return slices.DeleteFunc(ends, func(c *Conn) bool { return c.Stats().ZCopySent > 0 })
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

// TestRequestsAreNotCopied: with the default configuration, large requests and responses are
// transferred without a copy after the first ones, both ways.
func TestRequestsAreNotCopied(t *testing.T) {
	c, s := predicted(t, func(c, s *Conn) []*Conn {
		exchange(t, c, s, 2, predictSize)
		assert.Zero(t, c.Stats().ZCopySent, "the first ones are copied")
		assert.Zero(t, s.Stats().ZCopySent)
		exchange(t, c, s, 6, predictSize)
		return copied(c, s)
	})
	for _, end := range []*Conn{c, s} {
		assert.GreaterOrEqual(t, end.Stats().ZCopySent, uint64(predictSize/2), "%+v", end.Stats().Traffic)
		assert.NotZero(t, end.Stats().ZCopyReceived)
	}
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

// TestWritesWithDeadlineAreCopied: the peer need not run for a Write to end at its deadline, and the
// connection must remain usable.
func TestWritesWithDeadlineAreCopied(t *testing.T) {
	c, s := predictingPair(t)
	require.NoError(t, c.SetWriteDeadline(time.Now().Add(time.Hour)))
	exchange(t, c, s, 8, predictSize)
	assert.Zero(t, c.Stats().Advertised)
	assert.NotZero(t, s.Stats().Advertised)
	require.NoError(t, c.SetWriteDeadline(time.Time{}))
	exchange(t, c, s, 8, predictSize)
	assert.NotZero(t, c.Stats().Advertised)
}

// TestMappedMemoryIsNotCopied: a long Write of memory that is not Go's is one Write for zero copy too.
func TestMappedMemoryIsNotCopied(t *testing.T) {
	const size = 4 << 20
	b, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	require.NoError(t, err)
	defer unix.Munmap(b)
	require.True(t, mapped(b))
	c, _ := predicted(t, func(c, s *Conn) []*Conn {
		served := make(chan error, 1)
		go func() {
			in := make([]byte, size)
			for range 8 {
				if _, err := io.ReadFull(s, in); err != nil {
					served <- err
					return
				}
				if _, err := s.Write(in[:1]); err != nil {
					served <- err
					return
				}
			}
			served <- nil
		}()
		for range 8 {
			_, err := c.Write(b)
			require.NoError(t, err)
			_, err = io.ReadFull(c, make([]byte, 1))
			require.NoError(t, err)
		}
		require.NoError(t, <-served)
		return copied(c)
	})
	assert.NotZero(t, c.Stats().ZCopySent)
}

// TestReadsWithDeadlineAreCopied: likewise, the peer need not run for a Read to end at its deadline. The
// connection is one on which zero copy turned out to be faster.
func TestReadsWithDeadlineAreCopied(t *testing.T) {
	var c, s *Conn
	var fetched, first uint64
	for begin := time.Now(); fetched == first; {
		require.Less(t, time.Since(begin), 10*time.Second)
		c, s = predictingPair(t)
		exchange(t, c, s, 8, predictSize)
		first = s.Stats().ZCopyReceived
		require.True(t, first > 0 || c.Stats().Cancels > 0, "%+v", c.Stats().Traffic) // see predicted
		exchange(t, c, s, 8, predictSize)
		fetched = s.Stats().ZCopyReceived
	}
	require.NoError(t, s.SetReadDeadline(time.Now().Add(time.Hour)))
	exchange(t, c, s, 8, predictSize)
	assert.Equal(t, fetched, s.Stats().ZCopyReceived)
	require.NoError(t, s.SetReadDeadline(time.Time{}))
	for s.Stats().ZCopyReceived == fetched {
		exchange(t, c, s, 1, predictSize)
	}
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
