package sdp

import (
	"io"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestDeathOverSharedMemory: the peer's process is killed. That is an end to the
// program here if the one there had read everything, however it did, and a reset if not.
func TestDeathOverSharedMemory(t *testing.T) {
	t.Setenv(devicesVariable, "shm,iwarp")
	t.Setenv(thresholdVariable, "-1")
	for _, v := range []struct {
		name, script string
		want         error
	}{
		{"it has read all", "read 5, report, hold", io.EOF},
		{"it has copied all", "echo", io.EOF},
		{"it has not read all", "read 4, report, hold", syscall.ECONNRESET},
	} {
		t.Run(v.name, func(t *testing.T) {
			p := startPeer(t)
			c := p.perform(t, v.script)
			require.Equal(t, "shm", c.Device())
			_, err := c.Write(streamAt(0, 5))
			require.NoError(t, err)
			require.NoError(t, c.SetReadDeadline(time.Now().Add(soon)))
			if v.script == "echo" {
				_, err := io.ReadFull(c, make([]byte, 5))
				require.NoError(t, err)
			} else {
				p.report(t)
			}
			p.kill()
			_, err = c.Read(make([]byte, 1))
			assert.ErrorIs(t, err, v.want)
		})
	}
}
