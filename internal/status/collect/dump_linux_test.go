//go:build linux

package collect

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/internal/status"
)

// TestDump has a program that dumps, one that refuses, and one that says nothing.
func TestDump(t *testing.T) {
	dir := newDir(t)
	asked := make(chan string, 2)
	s, err := status.Serve(dir, status.Handlers{Status: says("{}"), Dump: func(options string, w io.Writer, gone <-chan struct{}) {
		asked <- options
		if options == "no" {
			io.WriteString(w, "no dump: not today\n")
			return
		}
		io.WriteString(w, "ok\nfirst")
		<-gone
		io.WriteString(w, " last")
	}})
	require.NoError(t, err)
	t.Cleanup(func() { s.Close() })
	c, err := Dump([]string{dir}, os.Getpid(), "size=5")
	require.NoError(t, err)
	defer c.Close()
	require.Equal(t, "size=5", <-asked)
	require.NoError(t, c.CloseWrite())
	text, err := io.ReadAll(c)
	require.NoError(t, err)
	require.Equal(t, "first last", string(text))
	_, err = Dump([]string{dir}, os.Getpid(), "no")
	require.EqualError(t, err, "no dump: not today")
	_, err = Dump([]string{dir}, os.Getpid()+1, "")
	require.ErrorContains(t, err, "not serving its status")
	raw(t, dir, fmt.Sprint(os.Getpid()+1)+"-impostor", func(c net.Conn) { io.WriteString(c, "ok\n") })
	_, err = Dump([]string{dir}, os.Getpid()+1, "")
	require.ErrorContains(t, err, "is served by process")
	require.EqualError(t, request(mute{io.Discard}, ""), fmt.Sprintf("no answer within %v", dumpPatience))
}

// TestDumpOfTwoProcesses has sockets with one process number, while the tool is in another pid
// namespace, and cannot tell whose they are.
func TestDumpOfTwoProcesses(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("missing: root, to make a pid namespace")
	}
	dir := newDir(t)
	dump := func() string {
		cmd := exec.Command("/proc/self/exe")
		cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0", "STATUS_DUMP="+dir)
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}
		out, err := cmd.CombinedOutput()
		if errors.Is(err, syscall.EPERM) {
			t.Skip("missing: the right to make a pid namespace")
		}
		require.NoError(t, err, "%s", out)
		return string(out)
	}
	raw(t, dir, "1-one", func(c net.Conn) { io.WriteString(c, "one\n") })
	require.Equal(t, "one", dump())
	raw(t, dir, "1-two", func(c net.Conn) { io.WriteString(c, "two\n") })
	require.Regexp(t, "^"+dir+"/1-(one|two) and "+dir+"/1-(one|two) may be of two processes", dump())
	d, err := open(dir)
	require.NoError(t, err)
	defer d.Close()
	f := findIn(t.Context(), d, []string{"1-one", "1-two"}, os.Getpid())
	require.NoError(t, f.err, "two sockets of one process")
	f.close()
}

// mute does not answer before its deadline.
type mute struct{ io.Writer }

func (mute) Read([]byte) (int, error) { return 0, os.ErrDeadlineExceeded }

// TestCloseEndsADump has a client that neither reads nor leaves.
func TestCloseEndsADump(t *testing.T) {
	s, err := status.Serve(newDir(t), status.Handlers{Dump: func(_ string, w io.Writer, gone <-chan struct{}) {
		io.WriteString(w, "ok\n")
		<-gone
		for {
			if _, err := w.Write(make([]byte, 1<<16)); err != nil {
				return
			}
		}
	}})
	require.NoError(t, err)
	c, err := net.Dial("unix", s.Path())
	require.NoError(t, err)
	defer c.Close()
	_, err = io.WriteString(c, "dump \n")
	require.NoError(t, err)
	_, err = io.ReadFull(c, make([]byte, 3))
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() { ended <- s.Close() }()
	select {
	case err := <-ended:
		require.NoError(t, err)
	case <-time.After(time.Minute):
		require.Fail(t, "Close waits for the client")
	}
}
