//go:build linux

package inside

import (
	"bufio"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/sdp"
)

// TestCloseGivesMemoryBack: a connection that ends with messages unread leaves none
// of its receive buffers behind, neither locked nor mapped. One has some 4 MB.
func TestCloseGivesMemoryBack(t *testing.T) {
	const conns = 8
	closing := func() {
		client, server, err := dialled(t, onVerbs) // and nobody keeps them
		require.NoError(t, err)
		_, err = server.Write(make([]byte, 30<<10)) // two messages
		require.NoError(t, err)
		first := make([]byte, 1)
		_, err = client.Read(first)
		require.NoError(t, err)
		done := make(chan struct{})
		go func(c *sdp.Conn) {
			defer close(done)
			c.Close()
		}(server)
		client.Close()
		<-done
	}
	closing()
	locked, mapped := memoryOf(t)
	for range conns {
		closing()
	}
	nowLocked, _ := memoryOf(t)
	assert.Less(t, nowLocked-locked, 4<<20, "locked")
	assert.Eventually(t, func() bool { // what was unread goes with the collector
		runtime.GC()
		_, now := memoryOf(t)
		return now-mapped < 4<<20
	}, 20*time.Second, 100*time.Millisecond, "mapped")
}

// memoryOf is how many bytes this process has pinned for devices, and of memory of
// its own in RAM.
func memoryOf(t *testing.T) (pinned, resident int) {
	t.Helper()
	f, err := os.Open("/proc/self/status")
	require.NoError(t, err)
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		name, rest, _ := strings.Cut(lines.Text(), ":")
		n, _ := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(rest), " kB"))
		switch name {
		case "VmPin":
			pinned = n << 10
		case "RssAnon":
			resident = n << 10
		}
	}
	return pinned, resident
}
