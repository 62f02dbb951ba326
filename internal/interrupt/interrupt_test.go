package interrupt

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestStopWaitsForWhatHasBegun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		began, ended := false, false
		stop := On(ctx, func() {
			began = true
			time.Sleep(time.Second)
			ended = true
		})
		cancel()
		synctest.Wait()
		require.True(t, began)
		stop()
		assert.True(t, ended)
	})
}

func TestStoppedIsNotRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		On(ctx, func() { t.Error("ran") })()
		cancel()
		synctest.Wait()
	})
}

// TestConnKeepsDeadlinesUnlessInterrupted: they are the program's.
func TestConnKeepsDeadlinesUnlessInterrupted(t *testing.T) {
	c, peer := net.Pipe()
	defer c.Close()
	defer peer.Close()
	require.NoError(t, c.SetDeadline(past))
	Conn(t.Context(), c)()
	_, err := c.Read(make([]byte, 1))
	assert.ErrorIs(t, err, os.ErrDeadlineExceeded)
}

// timeless is a connection without deadlines, as a channel of ssh is.
type timeless struct{ net.Conn }

func (timeless) SetDeadline(time.Time) error { return errors.ErrUnsupported }

func TestConnWithoutDeadlinesIsClosed(t *testing.T) {
	c, peer := net.Pipe()
	defer peer.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer Conn(ctx, timeless{c})()
	cancel()
	_, err := c.Read(make([]byte, 1))
	assert.ErrorIs(t, err, io.ErrClosedPipe)
}

func TestConnFailsWhileInterruptedOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, peer := net.Pipe()
		defer c.Close()
		defer peer.Close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		stop := Conn(ctx, c)
		start := time.Now()
		_, err := c.Read(make([]byte, 1))
		assert.ErrorIs(t, err, os.ErrDeadlineExceeded)
		assert.Equal(t, time.Second, time.Since(start))
		stop()

		go peer.Write([]byte("x"))
		_, err = c.Read(make([]byte, 1))
		assert.NoError(t, err)
	})
}
