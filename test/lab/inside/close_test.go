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

// TestCloseGivesMemoryBack: closing a connection with unread messages frees its receive
// buffers, about 4 MB per connection, so that they are neither locked nor mapped.
func TestCloseGivesMemoryBack(t *testing.T) {
	const conns = 8
	closing := func() {
		client, server, err := dialled(t, onVerbs) // no reference to them remains
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
	assert.Eventually(t, func() bool { // the garbage collector frees unread messages
		runtime.GC()
		_, now := memoryOf(t)
		return now-mapped < 4<<20
	}, 20*time.Second, 100*time.Millisecond, "mapped")
}

// memoryOf returns how many bytes this process has pinned for devices, and how many bytes
// of anonymous memory are resident.
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
