package diagnose

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gosdp/gosdp/internal/meeting"
	"github.com/gosdp/gosdp/internal/policy"
	"github.com/gosdp/gosdp/sdp"
)

const patience = time.Minute

// TestMain lets the test binary be another program: a server of SDP that prints its address,
// or a look at a machine whose files are below a directory.
func TestMain(m *testing.M) {
	meeting.TestSelf = true // servers are in the process of the test
	switch role, argument := os.Getenv("DIAGNOSE_ROLE"), os.Getenv("DIAGNOSE_ARGUMENT"); role {
	case "server":
		l, err := sdp.Listen("tcp", argument)
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println(l.Addr())
		for {
			c, err := l.Accept()
			if err != nil {
				os.Exit(1)
			}
			go io.Copy(io.Discard, c)
		}
	case "inspect":
		json.NewEncoder(os.Stdout).Encode(inspect(argument, os.Getenv))
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// as returns a command that runs the test binary in a role, as another user if uid is not 0.
func as(t *testing.T, role, argument string, uid uint32) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	if uid != 0 { // who may not enter go test's directory
		binary, err := os.ReadFile(self)
		require.NoError(t, err)
		dir, err := os.MkdirTemp("", "diagnose")
		require.NoError(t, err)
		t.Cleanup(func() { os.RemoveAll(dir) })
		require.NoError(t, os.Chmod(dir, 0o755))
		self = filepath.Join(dir, "diagnose.test")
		require.NoError(t, os.WriteFile(self, binary, 0o755))
	}
	cmd := exec.Command(self)
	cmd.Dir = "/"
	cmd.Env = append(os.Environ(), "DIAGNOSE_ROLE="+role, "DIAGNOSE_ARGUMENT="+argument)
	if uid != 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	}
	return cmd
}

// serving starts a server and returns its address.
func serving(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	var b [100]byte
	n, err := out.Read(b[:])
	require.NoError(t, err)
	return strings.TrimSpace(string(b[:n]))
}

func try(t *testing.T, network, address string) *Path {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	return Try(ctx, Inspect(), network, address)
}

// accepts takes connections until the test ends, and reads from each.
func accepts(t *testing.T, l net.Listener) {
	t.Helper()
	done := make(chan struct{})
	t.Cleanup(func() { l.Close(); <-done })
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				io.Copy(io.Discard, c)
			}()
		}
	}()
}

func TestServerSharesMemory(t *testing.T) {
	l, err := sdp.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	accepts(t, l)
	p := try(t, "tcp", l.Addr().String())
	require.True(t, p.SDP, "%+v", p)
	require.Equal(t, "tcp", p.Device)
	require.Equal(t, "shm", p.MovesTo)
	require.Empty(t, p.Reason)
	p = try(t, "sdp", l.Addr().String())
	require.True(t, p.SDP, "%+v", p)
	require.Equal(t, "shm", p.Device)
	require.Empty(t, p.MovesTo)
}

func TestPlainPeer(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	received := make(chan int64, 2)
	go func() {
		for range 2 { // the second to see whether the server shares memory
			if c, err := l.Accept(); err == nil {
				n, _ := io.Copy(io.Discard, c)
				received <- n
				c.Close()
			}
		}
	}()
	p := try(t, "tcp", l.Addr().String())
	require.False(t, p.SDP)
	require.Equal(t, CodePlainPeer, p.Code, "%+v", p)
	require.Equal(t, "the server does not share memory", p.Reason)
	require.Contains(t, p.Advice, "sdp proxy")
	require.False(t, p.Fails)
	require.Zero(t, <-received, "a plain server is sent bytes")
	require.Zero(t, <-received, "a plain server is sent bytes")
}

// TestPlainPeerOfNetworkSDP has a server with which a Dial on network sdp fails.
func TestPlainPeerOfNetworkSDP(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	accepts(t, l)
	p := try(t, "sdp", l.Addr().String())
	require.Equal(t, CodePlainPeer, p.Code, "%+v", p)
	require.True(t, p.Fails)
}

func TestSwitchedOff(t *testing.T) {
	t.Setenv("SDP_DEVICES", "tcp")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	p := try(t, "tcp", l.Addr().String())
	require.Equal(t, CodeOff, p.Code)
	require.Contains(t, p.Reason, "SDP_DEVICES=tcp")
	require.False(t, p.Fails)
	require.False(t, Inspect().Usable())
	p = try(t, "sdp", l.Addr().String())
	require.Equal(t, CodeOff, p.Code)
	require.True(t, p.Fails, "a Dial that demands SDP is said to be plain TCP")
	require.NoError(t, l.Close())
	p = try(t, "tcp", l.Addr().String())
	require.Equal(t, CodeUnreachable, p.Code, "%+v", p)
	require.Contains(t, p.Reason, "refused")
}

// TestEnvironmentIsThatOfThePage, so that check prints every setting.
func TestEnvironmentIsThatOfThePage(t *testing.T) {
	page, err := os.ReadFile("../../docs/operations.md")
	require.NoError(t, err)
	var names []string
	for _, m := range regexp.MustCompile("(?m)^\\| `(SDP_[A-Z_]+)` \\|").FindAllStringSubmatch(string(page), -1) {
		names = append(names, m[1])
	}
	require.ElementsMatch(t, names, policy.Variables)
}

// TestInvalidSettings: a variable with which every Dial fails is named.
func TestInvalidSettings(t *testing.T) {
	for setting, want := range map[string]string{
		"SDP_PEERS=abc":    `SDP_PEERS=abc: "abc" is neither an address nor a prefix`,
		"SDP_MEMORY=x":     "SDP_MEMORY=x: not a number of bytes, such as 512M",
		"SDP_DEVICES=foo":  `SDP_DEVICES=foo: unknown device "foo"`,
		"SDP_BUSY_POLL=1s": "",
		"SDP_DEVICES=tcp":  "",
	} {
		t.Run(setting, func(t *testing.T) {
			name, value, _ := strings.Cut(setting, "=")
			t.Setenv(name, value)
			m := Inspect()
			require.Equal(t, want, m.Invalid)
			require.Equal(t, want == "" && value != "tcp", m.Usable())
		})
	}
}

func TestNoDevice(t *testing.T) {
	t.Setenv("SDP_DEVICES", "verbs")
	l, err := sdp.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	p := try(t, "tcp", l.Addr().String())
	require.Equal(t, CodeNoDevice, p.Code)
	require.False(t, p.Fails)
	p = try(t, "sdp", l.Addr().String())
	require.Equal(t, CodeNoDevice, p.Code, "%+v", p)
	require.True(t, p.Fails)
	t.Setenv("SDP_DEVICES", "iwarp")
	p = try(t, "tcp", l.Addr().String())
	require.Equal(t, CodeNoDevice, p.Code, "%+v", p)
	require.Equal(t, "shm is not used: not in SDP_DEVICES=iwarp", p.Reason)
}

func TestNobodyListens(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	p := try(t, "tcp", l.Addr().String())
	require.Equal(t, CodeUnreachable, p.Code)
	require.Contains(t, p.Reason, "refused")
}

func TestAnotherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("missing: root, to start another user's program")
	}
	p := try(t, "tcp", serving(t, as(t, "server", "127.0.0.1:0", 12345)))
	require.False(t, p.SDP)
	require.Equal(t, CodeUser, p.Code, "%+v", p)
	require.Contains(t, p.Reason, "user 12345")
	require.Contains(t, p.Advice, "SDP_PEER_UIDS")
}

// made counts the namespaces of this test binary.
var made int

// namespace makes a network namespace that a wire connects with this one, and returns its
// name and its address.
func namespace(t *testing.T) (name, address string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("missing: root, to make network namespaces")
	}
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skip("missing: ip (iproute2)")
	}
	made++ // the kernel takes its time to remove the wire of the last one
	name = fmt.Sprintf("sdp-check-%d-%d", os.Getpid(), made)
	wire := fmt.Sprintf("sdpc%d-%d", os.Getpid()%100000, made)
	network := fmt.Sprintf("10.213.%d.", 9+made)
	address = network + "2"
	run := func(args ...string) {
		t.Helper()
		out, err := exec.Command("ip", args...).CombinedOutput()
		require.NoError(t, err, "ip %v: %s", args, out)
	}
	run("netns", "add", name)
	t.Cleanup(func() { run("netns", "del", name) })
	run("link", "add", wire, "type", "veth", "peer", "name", "wire", "netns", name)
	run("address", "add", network+"1/30", "dev", wire)
	run("link", "set", wire, "up")
	run("-n", name, "address", "add", address+"/30", "dev", "wire")
	run("-n", name, "link", "set", "wire", "up")
	return name, address
}

// TestAnotherHost has a server in another network namespace.
func TestAnotherHost(t *testing.T) {
	name, address := namespace(t)
	runtime.LockOSThread()
	home, err := os.Open("/proc/thread-self/ns/net")
	require.NoError(t, err)
	defer home.Close()
	there, err := os.Open("/run/netns/" + name)
	require.NoError(t, err)
	defer there.Close()
	require.NoError(t, unix.Setns(int(there.Fd()), unix.CLONE_NEWNET))
	l, err := net.Listen("tcp", address+":0")
	require.NoError(t, unix.Setns(int(home.Fd()), unix.CLONE_NEWNET))
	runtime.UnlockOSThread()
	require.NoError(t, err)
	defer l.Close()
	p := try(t, "tcp", l.Addr().String())
	require.Equal(t, CodeHost, p.Code, "%+v", p)
	require.Contains(t, p.Advice, "SDP_PEERS")
	t.Setenv("SDP_DEVICES", "shm")
	p = try(t, "sdp", l.Addr().String())
	require.Equal(t, CodeHost, p.Code, "%+v", p)
	require.True(t, p.Fails)
}

// machine makes the files of a machine, and returns the directory that they are below.
func machine(t *testing.T, files map[string]string) string {
	t.Helper()
	root, err := os.MkdirTemp("", "machine")
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(root) })
	require.NoError(t, os.Chmod(root, 0o755))
	for name, text := range files {
		path := filepath.Join(root, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	return root
}

// need returns what is said of a need of a device.
func need(t *testing.T, m *Machine, device, name string) Need {
	t.Helper()
	for _, d := range m.Devices {
		for _, n := range d.Needs {
			if d.Name == device && n.Name == name {
				return n
			}
		}
	}
	require.Fail(t, "nothing is said of "+name)
	return Need{}
}

func none(string) string { return "" }

func TestNoLibraries(t *testing.T) {
	m := inspect(machine(t, nil), none)
	n := need(t, m, "verbs", "libibverbs.so.1")
	require.False(t, n.OK)
	require.Contains(t, n.Advice, "rdma-core")
	with := machine(t, map[string]string{
		"usr/lib/x86_64-linux-gnu/libibverbs.so.1": "", "sys/class/infiniband/mlx5_0/node_type": "",
	})
	require.True(t, need(t, inspect(with, none), "verbs", "libibverbs.so.1").OK)
	require.Contains(t, need(t, inspect(with, none), "verbs", "RDMA device").Found, "mlx5_0")
	require.Contains(t, need(t, m, "verbs", "/dev/infiniband/rdma_cm").Advice, "modprobe rdma_ucm")
}

func TestKernelSharesMemory(t *testing.T) {
	m := Inspect()
	require.True(t, need(t, m, "shm", "kernel").OK)
	require.True(t, m.device("shm").Usable)
}

// TestNoPermissionAndTooLittleLockedMemory looks at a machine as a user without rights.
func TestNoPermissionAndTooLittleLockedMemory(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("missing: root, to start another user's program")
	}
	root := machine(t, map[string]string{"dev/infiniband/rdma_cm": "", "dev/infiniband/uverbs0": ""})
	cmd := as(t, "inspect", root, 12345)
	cmd.Path, cmd.Args = "/bin/sh", []string{"sh", "-c", `ulimit -l 64 && exec "$0"`, cmd.Path}
	out, err := cmd.Output()
	require.NoError(t, err, "%s", out)
	var m Machine
	require.NoError(t, json.Unmarshal(out, &m))
	for _, name := range []string{"/dev/infiniband/rdma_cm", "/dev/infiniband/uverbs0"} {
		n := need(t, &m, "verbs", name)
		require.False(t, n.OK)
		require.Equal(t, "no permission", n.Found)
	}
	n := need(t, &m, "verbs", "locked memory")
	require.False(t, n.OK)
	require.Contains(t, n.Found, "too little: 64 KB")
	require.Contains(t, n.Advice, "LimitMEMLOCK")
}

func TestSharedDirectory(t *testing.T) {
	dir, open, sticky := t.TempDir(), t.TempDir(), t.TempDir()
	require.NoError(t, os.Chmod(open, 0o777))
	require.NoError(t, os.Chmod(sticky, 0o777|os.ModeSticky))
	for path, want := range map[string]string{dir: "", sticky: "", open: "lets every user replace files", ".": "not an absolute path", dir + "/no": "no such file", os.Args[0]: "not a directory"} {
		n := need(t, inspect("/", func(name string) string {
			if name == "SDP_SHM_DIR" {
				return path
			}
			return ""
		}), "shm", "shared directory")
		require.Equal(t, want == "", n.OK, path)
		require.Contains(t, n.Found, want)
	}
}

func TestSettingsAreListed(t *testing.T) {
	m := inspect("/", func(name string) string {
		return map[string]string{"SDP_DEVICES": "shm, iwarp", "SDP_PEERS": "10.0.0.0/8"}[name]
	})
	require.Equal(t, []string{"SDP_DEVICES=shm, iwarp", "SDP_PEERS=10.0.0.0/8"}, m.Settings)
	require.True(t, m.Devices[2].Default, "iwarp was named")
}
