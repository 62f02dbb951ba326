package sdp

import (
	"io"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestWhoSharesMemory: a process in another network namespace is on another host,
// one of another user is a stranger, and one in another pid namespace shares
// memory but cannot reach into this process.
func TestWhoSharesMemory(t *testing.T) {
	if bestDevice() != "shm" {
		t.Skip("shm is not the device under test")
	}
	for _, v := range []struct {
		name     string
		flags    uintptr
		network  string
		device   string
		declined string
		buffered bool
		uid      int
	}{
		{"the same", 0, "sdp", "shm", "", false, -1},
		{"the same, a Unix socket", 0, "unix", "shm", "", false, -1},
		{"another pid namespace", syscall.CLONE_NEWPID, "sdp", "shm", "", true, -1},
		{"another network namespace", syscall.CLONE_NEWNET, "unix", "iwarp", "not chosen", false, -1},
		{"another user", 0, "sdp", "iwarp", "the peer's user has the uid", false, 12345},
		{"the user for all that have none", 0, "sdp", "iwarp", "the peer's user has the uid", false, 65534},
	} {
		t.Run(v.name, func(t *testing.T) {
			address := "127.0.0.1:0"
			if v.network == "unix" {
				address = filepath.Join(t.TempDir(), "socket")
			}
			lc := ListenConfig{Config: patient}
			ln, err := lc.Listen(t.Context(), v.network, address)
			require.NoError(t, err)
			defer ln.Close()
			child := peerCommand("dial " + v.network + " " + ln.Addr().String())
			child.SysProcAttr = &syscall.SysProcAttr{Cloneflags: v.flags}
			if v.uid >= 0 {
				child.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(v.uid), Gid: uint32(v.uid)}
				child.Path = "/proc/self/exe" // which it may not find by its name
			}
			stdin, err := child.StdinPipe()
			require.NoError(t, err)
			defer stdin.Close()
			out, err := child.StdoutPipe()
			require.NoError(t, err)
			if err := child.Start(); err != nil {
				t.Skipf("no namespaces may be made: %v", err)
			}
			defer finish(child)
			c, err := ln.Accept()
			require.NoError(t, err)
			defer c.Close()
			sdp := c.(*Conn)
			assert.Equal(t, v.device, sdp.Device(), "%v", sdp.Stats().Declined)
			assert.Equal(t, v.buffered, sdp.qp.Limits().BufferedOnly)
			go io.Copy(c, c)
			said, _ := io.ReadAll(out)
			assert.Contains(t, string(said), "hello over "+v.device)
			assert.Contains(t, string(said), v.declined)
		})
	}
}

func finish(cmd *exec.Cmd) {
	cmd.Process.Kill()
	cmd.Wait()
}
