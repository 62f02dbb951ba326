package containers

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// container is a process in namespaces of its own, that does what it is told on its standard
// input, a line for each command, and answers with a line.
type container struct {
	cmd     *exec.Cmd
	say     func(line string) error
	answers chan string
}

// options say what a container is like. The zero value is one with everything.
type options struct {
	dir    string // the shared directory; "": none
	uid    int    // its user; 0: root
	env    []string
	beside *container // it is in the network namespace of that one
	users  bool       // it has a user namespace of its own, with uids of its own
}

// inside is where a container has the shared directory.
const inside = "/mnt"

// answerTime is how long a command may take on a busy machine.
const answerTime = 60 * time.Second

// needsRoot skips the test if it cannot make containers.
func needsRoot(t testing.TB, tools ...string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("missing: root, to make namespaces")
	}
	for _, tool := range append(tools, "ip", "nsenter") {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("missing: %s: %v", tool, err)
		}
	}
}

// start starts a container, which ends with the test.
func start(t testing.TB, o options) *container {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", "-test.run=^$")
	if o.beside != nil {
		self, err := os.Executable()
		require.NoError(t, err)
		cmd = exec.Command("nsenter", "-t", strconv.Itoa(o.beside.cmd.Process.Pid), "-n", self, "-test.run=^$")
	}
	cmd.Stderr = os.Stderr
	// What the test itself is told of devices is not for the containers.
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "SDP_") })
	cmd.Env = append(cmd.Env, roleVariable+"=container", "SDP_MOVE=at-once")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWIPC | syscall.CLONE_NEWUTS,
		Pdeathsig:  syscall.SIGKILL,
	}
	if o.beside != nil {
		cmd.SysProcAttr.Cloneflags &^= syscall.CLONE_NEWNET
	}
	if o.users {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		all := []syscall.SysProcIDMap{{ContainerID: 0, HostID: 200000, Size: 65536}}
		cmd.SysProcAttr.UidMappings, cmd.SysProcAttr.GidMappings = all, all
		cmd.SysProcAttr.Credential = &syscall.Credential{}
	}
	c := &container{cmd: cmd, answers: make(chan string, 64)}
	if o.dir != "" {
		cmd.Env = append(cmd.Env, mountVariable+"="+o.dir, "SDP_SHM_DIR="+inside)
	}
	cmd.Env = append(append(cmd.Env, uidVariable+"="+strconv.Itoa(o.uid)), o.env...)
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	c.say = func(line string) error {
		_, err := fmt.Fprintln(in, line)
		return err
	}
	require.NoError(t, cmd.Start())
	done := make(chan struct{})
	go func() {
		defer close(done)
		lines := bufio.NewScanner(out)
		lines.Buffer(nil, 1<<24) // for a log
		for lines.Scan() {
			c.answers <- lines.Text()
		}
		close(c.answers)
	}()
	t.Cleanup(func() {
		c.kill()
		for range c.answers {
		}
		<-done
	})
	require.Equal(t, "ready", c.answer(t))
	return c
}

// kill ends the container as SIGKILL does.
func (c *container) kill() {
	c.cmd.Process.Kill()
	c.cmd.Wait()
}

// does has the container carry out a command, and returns its answer.
func (c *container) does(t testing.TB, format string, args ...any) string {
	t.Helper()
	require.NoError(t, c.say(fmt.Sprintf(format, args...)))
	return c.answer(t)
}

func (c *container) answer(t testing.TB) string {
	t.Helper()
	late := time.NewTimer(answerTime)
	defer late.Stop()
	select {
	case line, ok := <-c.answers:
		require.True(t, ok, "the container has ended")
		return line
	case <-late.C:
		require.Fail(t, "the container does not answer")
	}
	return ""
}

// run runs a program inside, in the network namespace of the container.
func (c *container) run(t testing.TB, program string, args ...string) string {
	t.Helper()
	all := append([]string{"-t", strconv.Itoa(c.cmd.Process.Pid), "-n", program}, args...)
	out, err := exec.Command("nsenter", all...).CombinedOutput()
	require.NoError(t, err, "%s %v: %s", program, args, out)
	return strings.TrimSpace(string(out))
}

// join puts a wire between two containers, whose ends have the addresses.
func join(t testing.TB, a, b *container, name, addressA, addressB string) {
	t.Helper()
	out, err := exec.Command("ip", "link", "add", name, "netns", strconv.Itoa(a.cmd.Process.Pid),
		"type", "veth", "peer", "name", name, "netns", strconv.Itoa(b.cmd.Process.Pid)).CombinedOutput()
	require.NoError(t, err, "%s", out)
	for _, end := range []struct {
		c       *container
		address string
	}{{a, addressA}, {b, addressB}} {
		end.c.run(t, "ip", "address", "add", end.address, "dev", name)
		end.c.run(t, "ip", "link", "set", name, "up")
		end.c.run(t, "ip", "link", "set", "lo", "up")
	}
}

// The addresses of a pair.
const (
	clientAddress = "10.211.0.1"
	serverAddress = "10.211.0.2"
)

// pair starts a server and a client on one wire.
func pair(t testing.TB, server, client options) (s, c *container) {
	t.Helper()
	s, c = start(t, server), start(t, client)
	join(t, c, s, "wire", clientAddress+"/24", serverAddress+"/24")
	return s, c
}

// sharedDir returns a directory for containers to share, of root's.
func sharedDir(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	for at := dir; at != "/tmp" && at != "/"; at = at[:max(1, strings.LastIndex(at, "/"))] {
		require.NoError(t, os.Chmod(at, 0o755))
	}
	return dir
}

// enter makes this process a container: it sees the pids of its own namespace, and the shared
// directory at another place than its host.
func enter() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("/ is not private: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return fmt.Errorf("/proc: %w", err)
	}
	if dir := os.Getenv(mountVariable); dir != "" {
		flags := uintptr(unix.MS_BIND)
		if err := unix.Mount(dir, inside, "", flags, ""); err != nil {
			return fmt.Errorf("%s: %w", dir, err)
		}
		if os.Getenv(readOnlyVariable) != "" {
			if err := unix.Mount("", inside, "", flags|unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
				return fmt.Errorf("%s read-only: %w", dir, err)
			}
		}
	}
	if uid, _ := strconv.Atoi(os.Getenv(uidVariable)); uid != 0 {
		if err := syscall.Setgid(uid); err != nil {
			return err
		}
		if err := syscall.Setgroups(nil); err != nil {
			return err
		}
		return syscall.Setuid(uid)
	}
	return nil
}
