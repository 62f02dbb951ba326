package proxy

import (
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
	if os.Getenv("SDP_TEST_NAMESPACE") == "" {
		if os.Geteuid() != 0 {
			t.Skip("only root can make a network namespace")
		}
		for _, tool := range []string{"nft", "ip"} {
			if _, err := exec.LookPath(tool); err != nil {
				t.Skip(tool, " is not installed")
			}
		}
		cmd := exec.Command(os.Args[0], "-test.run=^TestRedirectLeadsBack$", "-test.v")
		cmd.Env = append(os.Environ(), "SDP_TEST_NAMESPACE=1")
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
		out, err := cmd.CombinedOutput()
		if err != nil && strings.Contains(err.Error(), "operation not permitted") {
			t.Skip("this machine forbids network namespaces: ", err)
		}
		require.NoError(t, err, "%s", out)
		if strings.Contains(string(out), "--- SKIP") {
			t.Skipf("%s", out)
		}
		return
	}
	require.NoError(t, exec.Command("ip", "link", "set", "lo", "up").Run())
	rules := exec.Command("nft", "-f", "-")
	rules.Stdin = strings.NewReader("table ip nat { chain output { type nat hook output priority -100; tcp dport 6000 redirect to :15001; }; }")
	if out, err := rules.CombinedOutput(); err != nil {
		t.Skipf("the kernel has no such rules: %s", out)
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
			require.Contains(t, log.String(), "the target is the proxy itself")
			require.Eventually(t, func() bool { return p.Open() == 0 }, patience, time.Millisecond)
		})
	}
}
