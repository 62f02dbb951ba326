package sdp

import (
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestReadKeepsTheConnection although nobody else has it: nothing refers to it any more
// while the call waits.
func TestReadKeepsTheConnection(t *testing.T) {
	read := make(chan string, 1)
	s := readAlone(t, read)
	defer s.Close()
	for range 3 {
		collectGarbage()
	}
	_, err := s.Write([]byte("still there"))
	require.NoError(t, err)
	assert.Equal(t, "still there", <-read)
}

// collectGarbage collects garbage, and waits until a cleanup of it has run.
func collectGarbage() {
	ran := make(chan struct{})
	garbage(func() { close(ran) })
	runtime.GC()
	<-ran
}

// garbage makes an object that nobody refers to.
//
//go:noinline
func garbage(cleanup func()) {
	runtime.AddCleanup(new([64]*int), func(struct{}) { cleanup() }, struct{}{})
}

// readAlone returns the peer of a connection that only a Read in progress has.
//
//go:noinline
func readAlone(t *testing.T, read chan<- string) net.Conn {
	t.Helper()
	c, s, err := dialled()
	require.NoError(t, err)
	require.NoError(t, c.SetReadDeadline(time.Now().Add(soon)))
	go func() {
		b := make([]byte, 100)
		n, err := c.Read(b)
		if err != nil {
			read <- err.Error()
			return
		}
		read <- string(b[:n])
	}()
	require.Eventually(t, func() bool {
		return waitsIn("engine.(*Conn).Read(", "QueuePair).Wait(")
	}, soon, time.Millisecond)
	return s
}
