//go:build linux

package inside

import (
	"bytes"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/sdp"
)

// exchange sends the given number of buffers, each newly allocated, and compares.
func exchange(t *testing.T, from, to *sdp.Conn, rounds, size int) {
	t.Helper()
	for i := range rounds {
		content := make([]byte, size)
		rand.NewChaCha8([32]byte{byte(i), byte(size)}).Read(content)
		var writing sync.WaitGroup
		writing.Go(func() {
			_, err := from.Write(content)
			assert.NoError(t, err)
		})
		got := make([]byte, size)
		_, err := io.ReadFull(to, got)
		writing.Wait()
		require.NoError(t, err)
		require.True(t, bytes.Equal(content, got), "round %d", i)
	}
}

// TestReusedBuffers: a program that allocates a buffer for each Write and Read gets the right
// bytes, even if memory is reused for another buffer.
func TestReusedBuffers(t *testing.T) {
	client, server := pair(t, onVerbs)
	for range 6 {
		exchange(t, client, server, 1, 1<<20)
		exchange(t, server, client, 1, 1<<20)
		runtime.GC()
		debug.FreeOSMemory()
	}
	assert.NotZero(t, server.Stats().ZCopyReceived)
}

// TestChildren starts processes during transfers in both directions.
func TestChildren(t *testing.T) {
	client, server := pair(t, onVerbs)
	var over atomic.Bool
	var starting sync.WaitGroup
	starting.Go(func() {
		for !over.Load() {
			output, err := exec.Command("true").CombinedOutput()
			assert.NoError(t, err, "%s", output)
		}
	})
	exchange(t, client, server, 6, 1<<20)
	exchange(t, server, client, 20, 10_000)
	over.Store(true)
	starting.Wait()
}

// lockedVariable makes the test binary run as a user who may lock less memory than its
// buffers need.
const lockedVariable = "VERBS_LOCKED"

// TestLittleLockedMemory: data that cannot be locked is copied through private buffers.
func TestLittleLockedMemory(t *testing.T) {
	if os.Getenv(lockedVariable) != "" {
		// Enough for the private buffers of two ends and a few megabytes more.
		limit := syscall.Rlimit{Cur: 16 << 20, Max: 16 << 20}
		const memlock = 8 // not defined in package syscall
		require.NoError(t, syscall.Setrlimit(memlock, &limit))
		client, server := pair(t, onVerbs)
		exchange(t, client, server, 1, 16<<20)
		exchange(t, server, client, 3, 3<<20)
		exchange(t, client, server, 3, 1<<20)
		return
	}
	address(t)
	chmodDevices(t, 0o666)
	asUser(t, "TestLittleLockedMemory", lockedVariable+"=1")
}
