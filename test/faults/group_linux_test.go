package faults

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// smallGroup makes a control group of 32 MB, and returns its directory.
func smallGroup(t *testing.T) string {
	why := error(nil)
	for _, v := range [][2]string{{"/sys/fs/cgroup/memory", "memory.limit_in_bytes"}, {"/sys/fs/cgroup", "memory.max"}} {
		dir := filepath.Join(v[0], fmt.Sprint("gosdp-faults-", os.Getpid()))
		if why = os.Mkdir(dir, 0o755); why != nil {
			continue
		}
		t.Cleanup(func() {
			assert.Eventually(t, func() bool { return os.Remove(dir) == nil }, patience, 10*time.Millisecond)
		})
		if _, why = os.Stat(filepath.Join(dir, v[1])); why == nil {
			require.NoError(t, os.WriteFile(filepath.Join(dir, v[1]), []byte(fmt.Sprint(32<<20)), 0o644))
			return dir
		}
	}
	t.Skipf("missing: a control group for memory: %v", why)
	return ""
}

// TestSmallGroup: a server in a small control group survives 200 clients that write more than it reads, as over TCP.
func TestSmallGroup(t *testing.T) {
	for _, device := range append([]string{"tcp"}, deviceNames...) {
		t.Run(device, func(t *testing.T) {
			inGroup := []string{"sh", "-c", `echo $$ > "$0/cgroup.procs" && exec "$1"`, smallGroup(t)}
			t.Setenv("SDP_PEERS", "127.0.0.0/8") // a server that has no room for iwarp serves TCP
			server := start(t, "slow "+device+" "+serverAddress, nil, inGroup...)
			var writers sync.WaitGroup
			over := make(map[string]int)
			var conns []net.Conn
			for range 200 {
				c, err := dial(device, server.first)
				require.NoError(t, err)
				conns = append(conns, c)
				defer c.Close()
				for i, b := 0, make([]byte, 1); i < 50 && carrier(c) != device; i++ { // until it moves
					_, err := c.Write(b)
					require.NoError(t, err)
					_, err = io.ReadFull(c, b)
					require.NoError(t, err)
				}
				require.NoError(t, c.SetDeadline(time.Now().Add(4*time.Second)))
				writers.Go(func() {
					for b := make([]byte, 64<<10); ; {
						if _, err := c.Write(b); err != nil {
							assert.ErrorIs(t, err, os.ErrDeadlineExceeded)
							return
						}
					}
				})
			}
			writers.Wait()
			for _, c := range conns {
				over[carrier(c)]++
			}
			t.Log(over)
			assert.True(t, device == "tcp" || over[device] > 0, "%v", over)
			assert.NoError(t, server.cmd.Process.Signal(syscall.Signal(0)), "the server must be alive")
			server.report(t)
		})
	}
}
