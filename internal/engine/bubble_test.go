package engine

import (
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

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
	c, err := engineDial(ln.Addr().String())
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
	outside, err := engineListen()
	require.NoError(t, err)
	defer outside.Close()
	idle, served, err := bothEnds(outside, engineDial) // the idle monitor looks after it
	require.NoError(t, err)
	defer idle.Close()
	defer served.Close()

	t.Run("bubbles", func(t *testing.T) {
		for range 2 {
			t.Run("bubble", func(t *testing.T) {
				t.Parallel()
				for range 5 {
					synctest.Test(t, func(t *testing.T) {
						ln, err := engineListen()
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
	ln, err := engineListen()
	require.NoError(t, err)
	defer ln.Close()
	for range 2 {
		accepted := accept1(ln)
		synctest.Test(t, func(t *testing.T) {
			c, err := engineDial(ln.Addr().String())
			require.NoError(t, err)
			_, err = c.Write(streamAt(0, 200_000))
			require.NoError(t, err)
			require.NoError(t, c.Close())
		})
		s := <-accepted
		n, err := readStream(s, 0, forever, 10_000)
		assert.Equal(t, io.EOF, err)
		assert.Equal(t, 200_000, n)
		s.Close()
	}
}

// TestConnectionFromOutsideABubble is used in one, while a goroutine outside polls for it, and one
// uses the other end.
func TestConnectionFromOutsideABubble(t *testing.T) {
	c, s := pair(t)
	roundTrip(t, c, s, 1)()
	require.Eventually(t, func() bool { // in vain if there is no idle monitor
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.poll.background != absent && c.poll.leader == parked
	}, soon, time.Millisecond)
	var echo sync.WaitGroup
	echo.Go(func() {
		buf := make([]byte, 100_000)
		for {
			n, err := s.Read(buf)
			if err == io.EOF {
				break
			}
			if err == nil {
				_, err = s.Write(buf[:n])
			}
			if !assert.NoError(t, err) {
				break
			}
		}
		assert.NoError(t, s.CloseWrite())
	})
	const size = 1 << 20
	synctest.Test(t, func(t *testing.T) {
		for range 10 {
			_, err := c.Write([]byte{1})
			require.NoError(t, err)
			_, err = io.ReadFull(c, make([]byte, 1))
			require.NoError(t, err)
		}
		var writing sync.WaitGroup
		writing.Go(func() {
			_, err := c.Write(streamAt(0, size))
			assert.NoError(t, err)
			assert.NoError(t, c.CloseWrite())
		})
		n, err := readStream(c, 0, forever, 10_000)
		assert.Equal(t, io.EOF, err)
		assert.Equal(t, size, n)
		writing.Wait()
		assert.NoError(t, c.Close())
	})
	echo.Wait()
	assert.NoError(t, s.Close())
}

// TestNothingIsAdvertisedInABubble by a connection from outside: two ends that write at the same time
// withdraw what they advertise after a while, which does not pass there.
func TestNothingIsAdvertisedInABubble(t *testing.T) {
	const size = 256 << 10
	c, s := zcopyPair(t, 64<<10)
	write := func(t *testing.T) {
		var writing sync.WaitGroup
		writing.Go(func() {
			_, err := c.Write(streamAt(0, size))
			assert.NoError(t, err)
		})
		n, err := io.ReadFull(s, make([]byte, size))
		assert.NoError(t, err)
		assert.Equal(t, size, n)
		writing.Wait()
	}
	synctest.Test(t, write)
	_, counts := modeOut(c)
	assert.Zero(t, counts.Adverts)
	write(t)
	_, counts = modeOut(c)
	assert.NotZero(t, counts.Adverts)
}

// TestAcceptInABubbleOfAListenerFromOutside, whose own goroutine accepts.
func TestAcceptInABubbleOfAListenerFromOutside(t *testing.T) {
	ln, err := engineListen()
	require.NoError(t, err)
	defer ln.Close()
	var dialling sync.WaitGroup
	dialling.Go(func() {
		require.Eventually(t, func() bool { return waitsIn("(*Listener).Accept", "bubble.(*Cond).Wait") }, soon, time.Millisecond)
		c, err := engineDial(ln.Addr().String())
		if assert.NoError(t, err) {
			assert.NoError(t, c.Close())
		}
	})
	synctest.Test(t, func(t *testing.T) {
		c, err := ln.Accept()
		require.NoError(t, err)
		assert.NoError(t, c.Close())
	})
	dialling.Wait()
}

// TestDeadlineSetInABubble belongs to the bubble's clock. It does not end the program if another one is
// set outside, or the connection is closed there.
func TestDeadlineSetInABubble(t *testing.T) {
	a, b := pair(t)
	synctest.Test(t, func(t *testing.T) {
		require.NoError(t, a.SetDeadline(time.Now().Add(time.Hour)))
		require.NoError(t, b.SetDeadline(time.Now().Add(time.Hour)))
	})
	require.NoError(t, a.SetReadDeadline(time.Now().Add(10*time.Millisecond)))
	_, err := a.Read(make([]byte, 1))
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	for range 2 { // of which each has its own clock
		synctest.Test(t, func(t *testing.T) {
			require.NoError(t, a.SetReadDeadline(time.Now().Add(time.Second)))
			time.Sleep(2 * time.Second)
			_, err := a.Read(make([]byte, 1))
			require.ErrorIs(t, err, os.ErrDeadlineExceeded)
			require.NoError(t, a.SetReadDeadline(time.Now().Add(time.Hour)))
		})
	}
	require.NoError(t, a.Close())
	require.NoError(t, b.Close())
}
