package sdp

import (
	"io"
	"net"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// converse has two ends exchange a few messages and much, and close.
func converse(t *testing.T, ln net.Listener) {
	var serving sync.WaitGroup
	serving.Go(func() {
		c, err := ln.Accept()
		if !assert.NoError(t, err) {
			return
		}
		defer c.Close()
		_, err = io.Copy(c, c)
		assert.NoError(t, err)
	})
	c, err := Dial("sdp", ln.Addr().String())
	require.NoError(t, err)
	serving.Go(func() {
		for _, size := range []int{1, 100, 5000, 300_000, 1} {
			_, err := c.Write(streamAt(0, size))
			assert.NoError(t, err)
		}
		assert.NoError(t, c.(interface{ CloseWrite() error }).CloseWrite())
	})
	n, err := io.Copy(io.Discard, c)
	assert.NoError(t, err)
	assert.EqualValues(t, 1+100+5000+300_000+1, n)
	serving.Wait()
	assert.NoError(t, c.Close())
}

// TestTwoBubblesBesideOrdinaryConnections: nothing that serves connections of one is
// made in another, or touched from there; the runtime ends a program that does that.
// A bubble whose goroutines do not all end fails its test.
func TestTwoBubblesBesideOrdinaryConnections(t *testing.T) {
	outside, err := Listen("sdp", "127.0.0.1:0")
	require.NoError(t, err)
	defer outside.Close()
	idle, err := Dial("sdp", outside.Addr().String()) // the idle monitor looks after it
	require.NoError(t, err)
	defer idle.Close()
	served, err := outside.Accept()
	require.NoError(t, err)
	defer served.Close()

	t.Run("bubbles", func(t *testing.T) {
		for range 2 {
			t.Run("bubble", func(t *testing.T) {
				t.Parallel()
				for range 5 {
					synctest.Test(t, func(t *testing.T) {
						ln, err := Listen("sdp", "127.0.0.1:0")
						require.NoError(t, err)
						defer ln.Close()
						for range 5 {
							converse(t, ln)
						}
						assert.NoError(t, WaitClosed(t.Context()))
					})
				}
			})
		}
		t.Run("outside", func(t *testing.T) {
			t.Parallel()
			for range 20 {
				converse(t, outside)
			}
		})
	})
}

// TestCloseInABubbleDelivers although no goroutine goes on there.
func TestCloseInABubbleDelivers(t *testing.T) {
	ln, err := Listen("sdp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	for range 2 {
		synctest.Test(t, func(t *testing.T) {
			c, err := Dial("sdp", ln.Addr().String())
			require.NoError(t, err)
			_, err = c.Write(streamAt(0, 200_000))
			require.NoError(t, err)
			require.NoError(t, c.Close())
		})
		s, err := ln.Accept()
		require.NoError(t, err)
		n, err := readStream(s, 0, forever, 10_000)
		assert.Equal(t, io.EOF, err)
		assert.Equal(t, 200_000, n)
		s.Close()
	}
}
