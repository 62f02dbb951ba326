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
	for range 10 {
		runtime.GC()
		time.Sleep(time.Millisecond)
	}
	_, err := s.Write([]byte("still there"))
	require.NoError(t, err)
	assert.Equal(t, "still there", <-read)
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
	return s
}
