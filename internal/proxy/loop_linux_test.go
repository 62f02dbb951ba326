package proxy

import (
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestRedirectLeadsBack has rules that redirect what the proxy dials to the proxy, in a network
// namespace of its own.
func TestRedirectLeadsBack(t *testing.T) {
	if os.Getenv("GOSDP_TEST_NAMESPACE") == "" {
		if os.Geteuid() != 0 {
			t.Skip("missing: root, to make a network namespace")
		}
		for _, tool := range []string{"nft", "ip"} {
			if _, err := exec.LookPath(tool); err != nil {
				t.Skip("missing: ", tool)
			}
		}
		cmd := exec.Command(os.Args[0], "-test.run=^TestRedirectLeadsBack$", "-test.v")
		cmd.Env = append(os.Environ(), "GOSDP_TEST_NAMESPACE=1")
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
		out, err := cmd.CombinedOutput()
		if err != nil && strings.Contains(err.Error(), "operation not permitted") {
			t.Skip("missing: permission to make a network namespace: ", err)
		}
		require.NoError(t, err, "%s", out)
		if strings.Contains(string(out), "--- SKIP") {
			t.Skipf("missing: what the test in the namespace names: %s", out)
		}
		return
	}
	require.NoError(t, exec.Command("ip", "link", "set", "lo", "up").Run())
	rules := exec.Command("nft", "-f", "-")
	rules.Stdin = strings.NewReader("table ip nat { chain output { type nat hook output priority -100; tcp dport 6000 redirect to :15001; }; }")
	if out, err := rules.CombinedOutput(); err != nil {
		t.Skipf("missing: rules of the kernel that redirect: %s", out)
	}
	for _, dial := range []string{"tcp://original", "auto://original", "tcp://127.0.0.1:6000", "auto://127.0.0.1:6000"} {
		t.Run(dial, func(t *testing.T) {
			p, log := running(t, 100)
			require.NoError(t, p.Apply("", []Route{route(t, "tcp://127.0.0.1:15001", dial)}))
			c, err := net.Dial("tcp", "127.0.0.1:6000")
			if err == nil { // it may have been reset before Dial looked
				defer c.Close()
				require.NoError(t, c.SetDeadline(time.Now().Add(patience)))
				_, err = c.Read(make([]byte, 1))
			}
			require.ErrorIs(t, err, syscall.ECONNRESET)
			require.Contains(t, log.String(), "target is the proxy itself")
			require.Eventually(t, func() bool { return p.Open() == 0 }, patience, time.Millisecond)
		})
	}
}

// TestAnotherProgramGetsTheAddress of a socket that a Dial has closed, while its relay lasts. It is
// not taken for the proxy.
func TestAnotherProgramGetsTheAddress(t *testing.T) {
	t.Setenv("SDP_DEVICES", "iwarp")
	t.Setenv("SDP_PEERS", "127.0.0.0/8")
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	p, _ := running(t, 100)
	aborted := make(chan struct{}, 10)
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			defer c.Close()
			var b [4]byte
			if _, err := io.ReadFull(c, b[:]); err == nil && string(b[:]) == "MPA " {
				p.loops.mu.Lock()
				p.loops.settleLocked() // as when a client is accepted
				p.loops.mu.Unlock()
				c.(*net.TCPConn).SetLinger(0)
				c.Close()
				aborted <- struct{}{}
				continue
			}
			c.Write(b[:])
		}
	}()
	require.NoError(t, p.Apply("", []Route{route(t, "tcp://127.0.0.1:0", "auto://"+ln.Addr().String())}))
	c, err := net.Dial("tcp", at(p))
	require.NoError(t, err)
	defer c.Close()
	echoes(t, c, "word")
	select {
	case <-aborted:
	case <-time.After(patience):
		require.Fail(t, "the proxy has not offered SDP")
	}
	p.loops.mu.Lock()
	defer p.loops.mu.Unlock()
	require.Len(t, p.loops.dialled, 1)
	require.Empty(t, p.loops.pending)
}
