//go:build linux

package shm

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gosdp/gosdp/rdma"
)

const secret = "a secret of this process"

// ownSecret is the main function of a process that owns a secret, whose address it prints. It ends
// with its standard input.
func ownSecret() {
	b := append(make([]byte, 0, 4096), secret...)
	fmt.Println(addressOf(b))
	io.Copy(io.Discard, os.Stdin)
	runtime.KeepAlive(b)
}

// owner starts a process that owns a secret.
func owner(t *testing.T, attributes *syscall.SysProcAttr) (pid int, address uint64) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), strangerVariable+"=owner")
	cmd.SysProcAttr = attributes
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		in.Close()
		cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	_, err = fmt.Sscan(line, &address)
	require.NoError(t, err)
	return cmd.Process.Pid, address
}

// TestReachIsForOurOwnUser alone, whoever else may be the peer.
func TestReachIsForOurOwnUser(t *testing.T) {
	p := reach(os.Getpid(), os.Geteuid())
	assert.NotNil(t, p)
	p.release()
	assert.Nil(t, reach(os.Getpid(), os.Geteuid()+1))
	assert.Nil(t, reach(0, os.Geteuid()))
	assert.Empty(t, processes.byPID)
}

// TestReachIsInOurNamespace of pids alone, even if the kernel names a process in another one.
func TestReachIsInOurNamespace(t *testing.T) {
	pid, _ := owner(t, nil)
	p := reach(pid, os.Geteuid())
	assert.NotNil(t, p)
	p.release()
	if os.Geteuid() != 0 {
		t.Skip("missing: root, for a pid namespace")
	}
	pid, _ = owner(t, &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWPID})
	assert.Nil(t, reach(pid, os.Geteuid()))
	assert.Empty(t, processes.byPID)
}

// TestReadIsAnyProgramsOfThisUser: a right to read other users' memory is not used, because the peer's
// process may execute a program of theirs.
func TestReadIsAnyProgramsOfThisUser(t *testing.T) {
	read := func(pid int, address uint64) (string, error) {
		p, err := holdProcess(pid)
		require.NoError(t, err)
		defer p.release()
		b := make([]byte, len(secret))
		n, err := p.read(b, uintptr(address))
		return string(b[:n]), err
	}
	got, err := read(owner(t, nil))
	require.NoError(t, err)
	assert.Equal(t, secret, got)

	if os.Geteuid() != 0 {
		t.Skip("missing: root, for another user's process")
	}
	pid, address := owner(t, &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 12345, Gid: 12345}})
	_, err = read(pid, address)
	assert.ErrorIs(t, err, unix.EPERM)
	var rights threadRights
	require.NoError(t, rights.dropTracing())
	was := rights.dropped
	rights.restore()
	if !was {
		t.Skip("missing: CAP_SYS_PTRACE")
	}
	b := make([]byte, len(secret))
	local := [1]unix.Iovec{{Base: &b[0]}}
	local[0].SetLen(len(b))
	_, err = unix.ProcessVMReadv(pid, local[:], []unix.RemoteIovec{{Base: uintptr(address), Len: len(b)}}, 0)
	assert.NoError(t, err, "this thread has the right again")
}

// TestReadAfterTheEnd of the peer's process fails, although a process with its number can be read: it
// is another one.
func TestReadAfterTheEnd(t *testing.T) {
	child := exec.Command("cat")
	in, err := child.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, child.Start())
	p, err := holdProcess(child.Process.Pid)
	require.NoError(t, err)
	defer p.release()
	assert.False(t, p.ended())
	again, err := holdProcess(child.Process.Pid)
	require.NoError(t, err)
	assert.Same(t, p, again)
	again.release()
	assert.False(t, p.ended(), "one is left")
	require.NoError(t, in.Close())
	require.NoError(t, child.Wait())
	assert.True(t, p.ended())

	p.pid = os.Getpid() // as if this process had been given the number
	b := []byte(secret)
	got := make([]byte, len(b))
	n, err := p.read(got, uintptr(addressOf(b)))
	assert.Zero(t, n)
	assert.ErrorIs(t, err, unix.ESRCH)
	p.pid = child.Process.Pid
	next, err := holdProcess(child.Process.Pid)
	if err == nil { // the number is in use again
		assert.NotSame(t, p, next)
		next.release()
	}
}

// TestMeetingIsPrompt if others wait for it, even if the client's probe does not come. Later it may
// wait, in vain.
func TestMeetingIsPrompt(t *testing.T) {
	defer triesEnd(t)
	address, release := neverComes(t)
	defer release()
	p := newPlace(t)
	ticket := newTicket()
	setProbe(&ticket, address)
	k, socket := halves(ticket)
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	require.NoError(t, err)
	defer ln.Close()
	begin := time.Now()
	_, err = p.Meet(rdma.Peer{Prompt: true}, ticket, 7)
	assert.ErrorIs(t, err, rdma.ErrSlow)
	assert.Less(t, time.Since(begin), tryTime)
	w, err := p.Meet(rdma.Peer{}, ticket, 7)
	require.NoError(t, err)
	defer w.Withdraw()
	assert.Greater(t, time.Since(begin), tryTime)
	for _, what := range []error{errLeft, nil} {
		c, err := ln.AcceptUnix()
		require.NoError(t, err)
		defer c.Close()
		rc, err := c.SyscallConn()
		require.NoError(t, err)
		require.NoError(t, rc.Control(func(fd uintptr) { _, err = k.readMeeting(int(fd)) }))
		assert.Equal(t, what, err)
	}
	closesEnd(t)
}
