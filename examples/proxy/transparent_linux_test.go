package proxy_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gosdp/gosdp/examples/internal/programs"
)

// mark is the firewall mark of what the proxies dial.
const mark = "0x5d9"

// hosts are two network namespaces with a wire between them. In each stands a proxy, and
// nftables sends it every connection between the two.
type hosts struct {
	client, server string // the namespaces
	metrics        [2]string
}

// addresses of the server, by the version of IP.
var addresses = map[string]string{"ipv4": "10.213.7.2", "ipv6": "fd13:7::2"}

// transparent makes the hosts, or skips the test and says what is missing.
func transparent(t *testing.T) *hosts {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("missing: root, to make network namespaces")
	}
	nft := programs.Need(t, "nft")
	ip := programs.Need(t, "ip")
	name := fmt.Sprintf("sdp-%d", os.Getpid())
	h := &hosts{client: name + "-c", server: name + "-s"}
	run := func(name string, args ...string) {
		t.Helper()
		out, err := exec.Command(name, args...).CombinedOutput()
		require.NoError(t, err, "%s %s: %s", name, strings.Join(args, " "), out)
	}
	for _, ns := range []string{h.client, h.server} {
		run(ip, "netns", "add", ns)
		t.Cleanup(func() { run(ip, "netns", "del", ns) })
		run(ip, "-n", ns, "link", "set", "lo", "up")
	}
	run(ip, "link", "add", "wire", "netns", h.client, "type", "veth", "peer", "wire", "netns", h.server)
	for i, ns := range []string{h.client, h.server} {
		run(ip, "-n", ns, "address", "add", fmt.Sprintf("10.213.7.%d/24", i+1), "dev", "wire")
		run(ip, "-n", ns, "address", "add", fmt.Sprintf("fd13:7::%d/64", i+1), "dev", "wire", "nodad")
		run(ip, "-n", ns, "link", "set", "wire", "up")
	}
	rules := func(ns, text string) {
		t.Helper()
		cmd := exec.Command(ip, "netns", "exec", ns, nft, "-f", "-")
		cmd.Stdin = strings.NewReader(text)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	// These are the rules of docs/operations.md.
	rules(h.client, `table inet sdp {
	chain output {
		type nat hook output priority -100
		meta mark `+mark+` return
		oifname "wire" meta l4proto tcp redirect to :15001
	}
}`)
	rules(h.server, `table inet sdp {
	chain prerouting {
		type nat hook prerouting priority -100
		iifname "wire" meta l4proto tcp redirect to :15006
	}
}`)
	h.in(t, h.server, func() {
		_, p := start(t, "sdp://[::]:15006", "tcp://original", "-http", "127.0.0.1:9000")
		require.NotNil(t, p)
		h.metrics[1] = "127.0.0.1:9000"
	})
	h.in(t, h.client, func() {
		start(t, "tcp://[::]:15001", "sdp://original", "-mark", mark, "-http", "127.0.0.1:9000")
		h.metrics[0] = "127.0.0.1:9000"
	})
	return h
}

// in calls f in a network namespace: sockets that it opens and programs that it starts
// are there.
func (h *hosts) in(t *testing.T, ns string, f func()) {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	home, err := os.Open("/proc/thread-self/ns/net")
	require.NoError(t, err)
	defer home.Close()
	there, err := os.Open("/run/netns/" + ns)
	require.NoError(t, err)
	defer there.Close()
	require.NoError(t, unix.Setns(int(there.Fd()), unix.CLONE_NEWNET))
	defer func() { require.NoError(t, unix.Setns(int(home.Fd()), unix.CLONE_NEWNET)) }()
	f()
}

// carried returns what a host's proxy says of SDP: connections, and bytes each way.
func (h *hosts) carried(t *testing.T) (connections string) {
	t.Helper()
	h.in(t, h.client, func() {
		out := programs.Run(t, time.Minute, "curl", "--silent", "--show-error", "--fail", "http://"+h.metrics[0]+"/metrics")
		for line := range strings.Lines(out) {
			if n, ok := strings.CutPrefix(line, "sdp_connections_opened_total "); ok {
				connections = strings.TrimSpace(n)
			}
		}
	})
	return connections
}

// TestTransparentPrograms has programs that know nothing of a proxy talk with servers that
// know nothing of one. Every connection must have gone over SDP.
func TestTransparentPrograms(t *testing.T) {
	h := transparent(t)
	for _, ip := range []string{"ipv4", "ipv6"} {
		t.Run(ip, func(t *testing.T) {
			for name, test := range map[string]func(*testing.T, *hosts, string){
				"curl": curlThrough, "PostgreSQL": postgresThrough, "Redis": redisThrough, "ssh": sshThrough,
			} {
				t.Run(name, func(t *testing.T) {
					before := h.carried(t)
					test(t, h, addresses[ip])
					require.NotEqual(t, before, h.carried(t), "nothing went over SDP")
				})
			}
		})
	}
}

func curlThrough(t *testing.T, h *hosts, host string) {
	const size = 64 << 20
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got := sha256.New()
		io.Copy(got, r.Body)
		w.Header().Set("Sum", fmt.Sprintf("%x", got.Sum(nil)))
		writePattern(w, size)
	}))
	h.in(t, h.server, func() {
		var err error
		server.Listener.Close()
		server.Listener, err = net.Listen("tcp", net.JoinHostPort(host, "0"))
		require.NoError(t, err)
	})
	server.Start()
	defer server.Close()

	upload := filepath.Join(t.TempDir(), "upload")
	body := make([]byte, 8<<20)
	rand.Read(body)
	require.NoError(t, os.WriteFile(upload, body, 0o600))
	download, headers := upload+".down", upload+".headers"
	h.in(t, h.client, func() {
		programs.Run(t, time.Minute, "curl", "--silent", "--show-error", "--fail", "--noproxy", "*", "--globoff",
			"--data-binary", "@"+upload, "--output", download, "--dump-header", headers, server.URL)
	})
	got, err := os.ReadFile(download)
	require.NoError(t, err)
	wanted := sha256.New()
	require.NoError(t, writePattern(wanted, size))
	require.Equal(t, fmt.Sprintf("%x", wanted.Sum(nil)), fmt.Sprintf("%x", sha256.Sum256(got)))
	head, err := os.ReadFile(headers)
	require.NoError(t, err)
	require.Contains(t, string(head), fmt.Sprintf("Sum: %x", sha256.Sum256(body)))
}

func postgresThrough(t *testing.T, h *hosts, host string) {
	for _, name := range []string{"psql", "pgbench"} {
		programs.Need(t, name)
	}
	var address string
	h.in(t, h.server, func() { address = programs.PostgresAt(t, host) })
	_, port, err := net.SplitHostPort(address)
	require.NoError(t, err)
	run := func(name string, args ...string) (out string) {
		t.Helper()
		h.in(t, h.client, func() {
			out = programs.Run(t, time.Minute, name, append([]string{"-h", host, "-p", port, "-U", "postgres"}, args...)...)
		})
		return out
	}
	run("pgbench", "-i", "-q", "-s", "1", "postgres")
	report := run("pgbench", "-c", "4", "-j", "2", "-T", "2", "-n", "postgres")
	require.Contains(t, report, "number of failed transactions: 0 ")
	sum := run("psql", "-XAtq", "-v", "ON_ERROR_STOP=1", "-c",
		"select (select sum(delta) from pgbench_history) = (select sum(abalance) from pgbench_accounts)", "postgres")
	require.Equal(t, "t\n", sum)
	// The server sees the proxy beside it and not the client, as docs/operations.md says.
	peer := run("psql", "-XAtq", "-c", "select inet_client_addr()", "postgres")
	require.Equal(t, host+"\n", peer)
}

func redisThrough(t *testing.T, h *hosts, host string) {
	programs.Need(t, "redis-cli")
	var address string
	h.in(t, h.server, func() { address = programs.RedisAt(t, host) })
	_, port, err := net.SplitHostPort(address)
	require.NoError(t, err)
	value := strings.Repeat("value ", 1000)
	h.in(t, h.client, func() {
		programs.Run(t, time.Minute, "redis-cli", "-h", host, "-p", port, "set", "key", value)
		require.Equal(t, value+"\n", programs.Run(t, time.Minute, "redis-cli", "-h", host, "-p", port, "get", "key"))
	})
}

func sshThrough(t *testing.T, h *hosts, host string) {
	const port = "2222"
	sshd, err := os.Stat("/usr/sbin/sshd")
	if err != nil || sshd.IsDir() {
		t.Skip("missing: sshd (openssh-server)")
	}
	dir := t.TempDir()
	key := func(name string) string {
		path := filepath.Join(dir, name)
		programs.Run(t, time.Minute, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path)
		return path
	}
	hostKey, userKey := key("host"), key("user")
	require.NoError(t, os.MkdirAll("/run/sshd", 0o755))
	h.in(t, h.server, func() {
		_, err := programs.Start(t, exec.Command("/usr/sbin/sshd", "-D", "-e", "-f", "/dev/null", "-h", hostKey,
			"-o", "ListenAddress="+net.JoinHostPort(host, port), "-o", "PidFile=none", "-o", "UsePAM=no",
			"-o", "StrictModes=no", "-o", "PermitRootLogin=yes", "-o", "AuthorizedKeysFile="+userKey+".pub"), "listening on")
		require.NoError(t, err)
	})
	sent := make([]byte, 16<<20)
	rand.Read(sent)
	ssh := func(stdin io.Reader, args ...string) []byte {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var errs bytes.Buffer
		var out []byte
		h.in(t, h.client, func() {
			cmd := exec.CommandContext(ctx, programs.Need(t, "ssh"), append([]string{"-F", "none", "-p", port, "-i", userKey,
				"-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR",
				"-o", "IdentitiesOnly=yes"}, args...)...)
			cmd.Stdin, cmd.Stderr = stdin, &errs
			var err error
			out, err = cmd.Output()
			require.NoError(t, err, "%s", &errs)
		})
		return out
	}
	got := ssh(bytes.NewReader(sent), "root@"+host, "cat")
	require.True(t, bytes.Equal(sent, got), "%d bytes came back of %d", len(got), len(sent))
	session := ssh(strings.NewReader("echo $((6 * 7)) and $TERM\nexit\n"), "-tt", "root@"+host, "TERM=dumb sh")
	require.Contains(t, string(session), "42 and dumb")
}

// TestTransparentRefusesDirectConnections connects to the proxy itself, which would dial
// itself for ever.
func TestTransparentRefusesDirectConnections(t *testing.T) {
	address, _ := start(t, "tcp://127.0.0.1:0", "tcp://original")
	c, err := net.Dial("tcp", address)
	if err == nil { // else the reset came before connect(2) returned
		defer c.Close()
		require.NoError(t, c.SetDeadline(time.Now().Add(patience)))
		_, err = c.Read(make([]byte, 1))
	}
	require.ErrorIs(t, err, syscall.ECONNRESET)
}
