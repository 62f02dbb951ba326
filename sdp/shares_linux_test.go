package sdp

import (
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestWhoSharesMemory: a process in another network namespace is on another host,
// one of another user is a stranger, and one in another pid namespace shares
// memory but cannot reach into this process.
func TestWhoSharesMemory(t *testing.T) {
	if bestDevice() != "shm" {
		t.Skip("missing: shm as the device under test")
	}
	t.Setenv(devicesVariable, "shm,iwarp") // which is for those whom shm declines
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
		{"the same, copying", 0, "sdp", "shm", "", true, -1},
		{"the same, by default", 0, "sdp", "shm", "", !mayReadPeers(), -1},
		{"the same, a Unix socket", 0, "unix", "shm", "", false, -1},
		{"another pid namespace", syscall.CLONE_NEWPID, "sdp", "shm", "", true, -1},
		{"another network namespace", syscall.CLONE_NEWNET, "unix", "", "", false, -1},
		{"another user", 0, "sdp", "iwarp", "peer has uid", false, 12345},
		{"another user, whom only the server allows", 0, "sdp", "iwarp", "not offered by client", false, 12346},
		{"the user for all that have none", 0, "sdp", "iwarp", "peer has uid", false, 65534},
	} {
		t.Run(v.name, func(t *testing.T) {
			before := Stats().Declined
			threshold := "1000000" // at both ends: they look for each other's memory
			switch v.name {
			case "the same, copying":
				threshold = "-1"
			case "the same, by default":
				threshold = ""
			}
			t.Setenv(thresholdVariable, threshold)
			address := "127.0.0.1:0"
			if v.network == "unix" {
				address = filepath.Join(t.TempDir(), "socket")
			}
			config := *patient
			config.PeerUIDs = []int{12346}
			lc := ListenConfig{Config: &config}
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
			err = child.Start()
			if errors.Is(err, syscall.EPERM) {
				t.Skipf("missing: root, to make namespaces and to be another user: %v", err)
			}
			if v.uid >= 0 && errors.Is(err, syscall.EACCES) {
				t.Skipf("missing: the right of another user to execute this test: %v", err)
			}
			require.NoError(t, err)
			defer finish(child)
			c, err := ln.Accept()
			require.NoError(t, err)
			defer c.Close()
			if v.device == "" {
				require.IsType(t, (*net.UnixConn)(nil), c)
				go io.Copy(c, c)
				said, _ := io.ReadAll(out)
				assert.Contains(t, string(said), "hello over *net.UnixConn")
				return
			}
			sdp := c.(*Conn)
			assert.Equal(t, v.device, sdp.Device(), "%v", sdp.Stats().Declined)
			assert.Equal(t, v.buffered, sdp.qp.Limits().BufferedOnly)
			go io.Copy(c, c)
			said, _ := io.ReadAll(out)
			assert.Contains(t, string(said), "hello over "+v.device)
			if v.declined != "" {
				assert.Contains(t, sdp.Stats().Declined["shm"], v.declined)
				why := "shm:not chosen by peer"
				if v.uid == 12346 {
					why = "shm:shm: peer has uid 0, ours 12346"
				}
				assert.Contains(t, string(said), why)
				assert.Equal(t, before+1, Stats().Declined)
			} else {
				assert.Equal(t, before, Stats().Declined)
			}
		})
	}
}

func finish(cmd *exec.Cmd) {
	cmd.Process.Kill()
	cmd.Wait()
}

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
	p.stop(t)
	defer p.cmd.Process.Signal(syscall.SIGCONT)
	require.NoError(t, c.SetDeadline(time.Now().Add(200*time.Millisecond)))
	_, err = c.Write(make([]byte, 16<<20))
	assert.ErrorIs(t, err, os.ErrDeadlineExceeded)
	_, err = c.Read(make([]byte, 1))
	assert.ErrorIs(t, err, os.ErrDeadlineExceeded)
	closed := make(chan error, 1)
	go func() { closed <- c.Close() }()
	assert.NoError(t, await(t, closed, soon))
}
