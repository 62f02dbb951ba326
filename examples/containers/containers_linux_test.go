package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// roleVariable makes the test binary the program in a container: what it has to do.
const roleVariable = "CONTAINERS_EXAMPLE"

func TestMain(m *testing.M) {
	if role := os.Getenv(roleVariable); role != "" {
		bufio.NewReader(os.Stdin).ReadString('\n') // when the network is there
		if err := run(strings.Fields(role)); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// inContainer prepares the program in namespaces of its own.
func inContainer(t *testing.T, dir, role string) (*exec.Cmd, io.WriteCloser) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), roleVariable+"="+role, "SDP_SHM_DIR="+dir, "SDP_DEVICES=")
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS | syscall.CLONE_NEWPID,
		Pdeathsig:  syscall.SIGKILL,
	}
	begin, err := cmd.StdinPipe()
	require.NoError(t, err)
	return cmd, begin
}

func ip(t *testing.T, pid int, args ...string) {
	t.Helper()
	all := append([]string{"-t", strconv.Itoa(pid), "-n", "ip"}, args...)
	out, err := exec.Command("nsenter", all...).CombinedOutput()
	require.NoError(t, err, "%v: %s", args, out)
}

// TestAcrossContainers has HTTP and gRPC go from one network namespace to another over shm.
func TestAcrossContainers(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("missing: root, to make namespaces")
	}
	for _, tool := range []string{"ip", "nsenter"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("missing: %s: %v", tool, err)
		}
	}
	// net/http drops a connection if its goroutine that wrote the request has not run within 50 ms.
	assert.Regexp(t, `^http: 2000 requests on \d+ connection over shm(,tcp)?\ngrpc: 2000 calls on 1 connection over (shm|tcp)\n$`, across(t))
}

// TestHelpIsNoError runs the program without a container.
func TestHelpIsNoError(t *testing.T) {
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), roleVariable+"=call -h")
	cmd.Stdin = strings.NewReader("\n")
	said, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", said)
	require.Contains(t, string(said), "-times")
}

// across runs the server and the client, each in a container, and returns what the client prints.
func across(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	server, beginServer := inContainer(t, dir, "serve -http :8080 -grpc :9090")
	out, err := server.StdoutPipe()
	require.NoError(t, err)
	client, beginClient := inContainer(t, dir, "call -times 2000 -http 10.213.0.1:8080 -grpc 10.213.0.1:9090")
	var said bytes.Buffer
	client.Stdout = &said
	for _, cmd := range []*exec.Cmd{server, client} {
		require.NoError(t, cmd.Start())
		defer cmd.Wait()
		defer cmd.Process.Kill()
	}
	s, c := server.Process.Pid, client.Process.Pid
	made, err := exec.Command("ip", "link", "add", "eth0", "netns", strconv.Itoa(s), "type", "veth", "peer", "name", "eth0", "netns", strconv.Itoa(c)).CombinedOutput()
	require.NoError(t, err, "%s", made)
	for pid, address := range map[int]string{s: "10.213.0.1/24", c: "10.213.0.2/24"} {
		ip(t, pid, "address", "add", address, "dev", "eth0")
		ip(t, pid, "link", "set", "eth0", "up")
	}
	fmt.Fprintln(beginServer)
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "serving\n", line)
	fmt.Fprintln(beginClient)
	require.NoError(t, client.Wait(), said.String())
	return said.String()
}
