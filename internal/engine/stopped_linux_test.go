package engine

import (
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestPeerIsStopped: calls end by their deadlines, and Close does in its time.
func TestPeerIsStopped(t *testing.T) {
	t.Parallel() // it waits
	p := startPeer(t)
	c := p.perform(t, "echo")
	b := make([]byte, 1)
	_, err := c.Write(b)
	require.NoError(t, err)
	_, err = c.Read(b)
	require.NoError(t, err)
	p.Stop(t)
	defer p.Cmd.Process.Signal(syscall.SIGCONT)
	require.NoError(t, c.SetDeadline(time.Now().Add(200*time.Millisecond)))
	_, err = c.Write(make([]byte, 16<<20))
	assert.ErrorIs(t, err, os.ErrDeadlineExceeded)
	_, err = c.Read(make([]byte, 1))
	assert.ErrorIs(t, err, os.ErrDeadlineExceeded)
	closed := make(chan error, 1)
	go func() { closed <- c.Close() }()
	assert.NoError(t, await(t, closed, soon))
}
