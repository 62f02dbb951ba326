//go:build linux

package collect

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/gosdp/gosdp/internal/status"
)

// TestMain lets the test binary be another user's program, which prints what a socket says.
func TestMain(m *testing.M) {
	if path := os.Getenv("STATUS_READ"); path != "" {
		c, err := net.Dial("unix", path)
		if err != nil {
			fmt.Print(err)
			os.Exit(0)
		}
		c.SetDeadline(time.Now().Add(time.Minute))
		io.WriteString(c, os.Getenv("STATUS_COMMAND"))
		io.Copy(os.Stdout, c)
		os.Exit(0)
	}
	if dir := os.Getenv("STATUS_DUMP"); dir != "" {
		_, err := Dump([]string{dir}, os.Getpid(), "")
		fmt.Print(err)
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// newDir makes a directory whose name is short enough for a socket in it.
func newDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "status")
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func says(text string) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := io.WriteString(w, text)
		return err
	}
}

func serve(t *testing.T, dir string, write func(io.Writer) error) *status.Server {
	t.Helper()
	s, err := status.Serve(dir, status.Handlers{Status: write})
	require.NoError(t, err)
	t.Cleanup(func() { s.Close() })
	return s
}

// raw serves a socket that does what f does with each client.
func raw(t *testing.T, dir, name string, f func(net.Conn)) {
	t.Helper()
	ln, err := net.Listen("unix", filepath.Join(dir, name))
	require.NoError(t, err)
	done := make(chan struct{})
	t.Cleanup(func() { ln.Close(); <-done })
	go func() {
		defer close(done)
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			c.Read(make([]byte, 64)) // the command; what is unread at Close would reset the connection
			f(c)
			c.Close()
		}
	}()
}

// collectUntil acts like Collect, but has more patience, and ends when all programs of the directories whose
// names do not begin with "hung" have answered.
func collectUntil(t *testing.T, dirs ...string) ([]status.Program, []Failure) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	visits := start(ctx, dirs)
	answered := func(v *visit) bool {
		v.mu.Lock()
		defer v.mu.Unlock()
		return v.opened && !slices.ContainsFunc(v.answers, func(a answer) bool {
			return !strings.HasPrefix(a.socket.name, "hung") && a.err != nil && a.err.Error() == errSlow(Patience).Error()
		})
	}
	for _, v := range visits {
		for !strings.HasPrefix(filepath.Base(v.path), "hung") && !answered(v) {
			require.NoError(t, ctx.Err(), "the programs in %s wait for those that hang", v.path)
			time.Sleep(time.Millisecond)
		}
	}
	cancel()
	return finish(ctx, visits)
}

func TestCollect(t *testing.T) {
	dir := newDir(t)
	s := serve(t, dir, says(`{"version":1,"pid":1,"name":"x","open":1,"connections":[{"id":7,"device":"shm","sent":5,"declined":{"verbs":"no"}}]}`))
	info, err := os.Stat(dir)
	require.NoError(t, err)
	require.EqualValues(t, 0o700, info.Mode().Perm())
	programs, failures := Collect([]string{dir, dir + "-that-is-not-there"})
	require.Empty(t, failures)
	require.Len(t, programs, 1)
	require.Equal(t, os.Getpid(), programs[0].PID, "a program says itself which process it is")
	require.Equal(t, status.Conns{{ID: 7, Device: "shm", Sent: 5, Declined: map[string]string{"verbs": "no"}}}, programs[0].Conns)
	require.NoError(t, s.Close())
	_, err = os.Stat(s.Path())
	require.ErrorIs(t, err, os.ErrNotExist)
}

// TestCollectIsNotHeldUp has programs that hang, that send without end, that say nonsense and
// that are dead beside one that is well.
func TestCollectIsNotHeldUp(t *testing.T) {
	giveTime(t, time.Minute)
	dir := newDir(t)
	end := make(chan struct{})
	t.Cleanup(func() { close(end) }) // before those of raw
	serve(t, dir, says(`{"version":1,"name":"well"}`))
	hang := func(name string, f func(net.Conn)) {
		ln, err := net.Listen("unix", filepath.Join(dir, name))
		require.NoError(t, err)
		t.Cleanup(func() { ln.Close() })
		go func() {
			if c, err := ln.Accept(); err == nil {
				defer c.Close()
				f(c)
			}
		}()
	}
	hang("hung-silent", func(net.Conn) { <-end })
	hang("hung-trickles", func(c net.Conn) {
		for {
			select {
			case <-end:
				return
			case <-time.After(time.Millisecond):
				c.Write([]byte(" "))
			}
		}
	})
	raw(t, dir, "3-endless", func(c net.Conn) {
		io.WriteString(c, `{"version":1,"name":"`)
		for {
			if _, err := c.Write(make([]byte, 1<<16)); err != nil {
				return
			}
		}
	})
	raw(t, dir, "4-nonsense", func(c net.Conn) { io.WriteString(c, `{"connections":7}`) })
	raw(t, dir, "9-later", func(c net.Conn) { io.WriteString(c, `{"version":2}`) })
	raw(t, dir, "5-many", func(c net.Conn) {
		io.WriteString(c, `{"version":1,"connections":[{}`+strings.Repeat(",{}", maxConns)+`]}`)
	})
	full, err := net.ListenUnix("unix", &net.UnixAddr{Name: dir + "/hung-full", Net: "unix"})
	require.NoError(t, err)
	defer full.Close() // accepts nothing
	require.NoError(t, os.WriteFile(dir+"/7-file", []byte("{}"), 0o600))
	require.NoError(t, os.Symlink("7-file", dir+"/8-link"))
	dead := exec.Command("true")
	require.NoError(t, dead.Run())
	left := fmt.Sprintf("%s/%d-dead", dir, dead.Process.Pid)
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: left, Net: "unix"})
	require.NoError(t, err)
	ln.SetUnlinkOnClose(false)
	require.NoError(t, ln.Close())

	programs, failures := collectUntil(t, dir)
	require.Len(t, programs, 1)
	require.Equal(t, "well", programs[0].Name)
	said := make(map[string]string)
	for _, f := range failures {
		_, name, _ := strings.Cut(filepath.Base(f.Path), "-")
		said[name] = f.Err.Error()
	}
	require.Contains(t, said["silent"], "no answer within")
	require.Contains(t, said["trickles"], "no answer within")
	require.Contains(t, said["endless"], "answer exceeds 8 MB")
	require.Contains(t, said["nonsense"], "malformed answer")
	require.Contains(t, said["later"], "unsupported status version 2, this tool reads 1")
	require.Contains(t, said["many"], "more than 20000 connections")
	require.Contains(t, said["full"], "no answer within")
	require.Contains(t, said["file"], "not a socket")
	require.Contains(t, said["link"], "not a socket")
	require.Contains(t, said["dead"], "program exited")
	_, err = os.Lstat(left)
	require.ErrorIs(t, err, os.ErrNotExist)
}

// TestCollectEnds has a program that does not answer.
func TestCollectEnds(t *testing.T) {
	dir := newDir(t)
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: dir + "/1", Net: "unix"})
	require.NoError(t, err)
	defer ln.Close() // accepts nothing
	programs, failures := Collect([]string{dir})
	require.Empty(t, programs)
	require.Len(t, failures, 1)
	require.ErrorContains(t, failures[0].Err, "no answer within 200ms")
}

func decodeText(text string) (status.Program, error) {
	return decode([]byte(text), maxConns, time.Now().Add(time.Minute))
}

// giveTime gives decoding more time, for the race detector and busy machines.
func giveTime(t *testing.T, d time.Duration) {
	was := decodeTime
	decodeTime = d
	t.Cleanup(func() { decodeTime = was })
}

// TestNoConnectionsAreAList: "sdp stat -json" prints an empty list, and not null, over which scripts
// cannot iterate.
func TestNoConnectionsAreAList(t *testing.T) {
	for _, text := range []string{`{"version":1,"connections":[]}`, `{"version":1}`} {
		p, err := decodeText(text)
		require.NoError(t, err)
		require.Equal(t, status.Conns{}, p.Conns, text)
	}
}

// TestHungProgramsDelayOnlyTheirUser has more programs that hang than are asked at a time.
func TestHungProgramsDelayOnlyTheirUser(t *testing.T) {
	hung, well := newDir(t), newDir(t)
	for i := range 4 * atATime {
		ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: fmt.Sprintf("%s/hung%d", hung, i), Net: "unix"})
		require.NoError(t, err)
		defer ln.Close() // accepts nothing
	}
	serve(t, well, says(`{"version":1,"name":"well"}`))
	programs, failures := collectUntil(t, hung, well)
	require.Len(t, programs, 1)
	require.Len(t, failures, 4*atATime)
}

// TestNothingIsRemovedElsewhere has a user put a link where the directory was, while root's
// tool is about to remove the socket of a dead program.
func TestNothingIsRemovedElsewhere(t *testing.T) {
	const name = "2147483647"
	dir, victim := newDir(t), newDir(t)
	require.NoError(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(victim, name), nil, 0o600))
	d, err := open(dir)
	require.NoError(t, err)
	defer d.Close()
	require.NoError(t, os.Rename(dir, dir+"-moved"))
	t.Cleanup(func() { os.RemoveAll(dir + "-moved") })
	require.NoError(t, os.Symlink(victim, dir))
	require.ErrorContains(t, socket{d, name}.gone(), "stale socket removed")
	require.FileExists(t, filepath.Join(victim, name))
	require.NoFileExists(t, filepath.Join(dir+"-moved", name))
}

// TestNothingIsAskedElsewhere has a user put a link to another directory where theirs was, and a link
// to a socket where theirs was, while root's tool is about to connect.
func TestNothingIsAskedElsewhere(t *testing.T) {
	dir, victim := newDir(t), newDir(t)
	raw(t, dir, "1", func(c net.Conn) { io.WriteString(c, "own") })
	raw(t, victim, "1", func(c net.Conn) { io.WriteString(c, "another's") })
	d, err := open(dir)
	require.NoError(t, err)
	defer d.Close()
	require.NoError(t, os.Rename(dir, dir+"-moved"))
	t.Cleanup(func() { os.RemoveAll(dir + "-moved") })
	require.NoError(t, os.Symlink(victim, dir))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	b := budgets{newBudget(maxUserBytes), newBudget(maxAllBytes)}
	text, _, err := ask(ctx, socket{d, "1"}, b)
	require.NoError(t, err)
	require.Equal(t, "own", string(text))
	require.NoError(t, os.Symlink(filepath.Join(victim, "1"), filepath.Join(dir+"-moved", "2")))
	_, _, err = ask(ctx, socket{d, "2"}, b)
	require.ErrorIs(t, err, errNoSocket)
}

// TestDirectoryBecomesAFIFO: a user puts a FIFO where the directory was, while root's tool looks at
// it. Opening that for reading would wait for a writer.
func TestDirectoryBecomesAFIFO(t *testing.T) {
	dir, fifo := newDir(t)+"/dir", newDir(t)+"/fifo"
	require.NoError(t, os.Mkdir(dir, 0o700))
	require.NoError(t, syscall.Mkfifo(fifo, 0o700))
	exchange := func() error {
		return unix.Renameat2(unix.AT_FDCWD, dir, unix.AT_FDCWD, fifo, unix.RENAME_EXCHANGE)
	}
	if err := exchange(); err != nil {
		t.Skip("missing: a file system that exchanges files: ", err)
	}
	opened := make(chan error)
	go func() {
		d, err := open(dir)
		if err == nil {
			d.Close()
		}
		opened <- err
	}()
	late := time.After(time.Minute)
	rescue := func() { // ends what hangs
		if f, err := os.OpenFile(fifo, os.O_RDWR|syscall.O_NONBLOCK, 0); err == nil {
			defer f.Close()
		}
		if f, err := os.OpenFile(dir, os.O_RDWR|syscall.O_NONBLOCK, 0); err == nil {
			defer f.Close()
		}
		<-opened
		require.FailNow(t, "opening the FIFO hangs")
	}
	select {
	case err := <-opened:
		require.ErrorIs(t, err, syscall.ENOTDIR)
	case <-late:
		rescue()
	}
	stop := make(chan struct{})
	var all sync.WaitGroup
	defer all.Wait()
	defer close(stop)
	all.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				exchange()
			}
		}
	})
	go func() {
		for range 5000 {
			if d, err := open(dir); err == nil {
				d.Close()
			}
		}
		opened <- nil
	}()
	select {
	case <-opened:
	case <-late:
		rescue()
	}
}

// TestDirectoryHangs: a user's file system does not answer. The other users' programs are listed,
// and calls that hang do not pile up.
func TestDirectoryHangs(t *testing.T) {
	hung, well := filepath.Join(newDir(t), "hung"), newDir(t)
	s, err := status.Serve(well, status.Handlers{
		Status: says(`{"version":1,"name":"well"}`),
		Dump:   func(_ string, w io.Writer, _ <-chan struct{}) { io.WriteString(w, "ok\n") },
	})
	require.NoError(t, err)
	t.Cleanup(func() { s.Close() })
	var calls atomic.Int32
	release := make(chan struct{})
	open = func(path string) (*directory, error) {
		if path == hung {
			calls.Add(1)
			<-release
		}
		return openDirectory(path)
	}
	defer func() {
		close(release)
		require.Eventually(t, func() bool { return enter(t.Context(), hung, func(*directory) error { return nil }) != errHung }, time.Minute, time.Millisecond)
		open = openDirectory
	}()
	for range 3 {
		programs, failures := collectUntil(t, hung, well)
		require.Len(t, programs, 1)
		require.Equal(t, []Failure{{hung, errHung}}, failures)
	}
	require.ErrorIs(t, Usable(hung), errHung)
	c, err := Dump([]string{hung, well}, os.Getpid(), "")
	require.NoError(t, err)
	require.NoError(t, c.Close())
	require.EqualValues(t, 1, calls.Load())
}

func TestServeRefusesDirectoriesOfOthers(t *testing.T) {
	open := newDir(t)
	require.NoError(t, os.Chmod(open, 0o755))
	_, err := status.Serve(open, status.Handlers{})
	require.ErrorContains(t, err, "is accessible to other users")
	_, failures := Collect([]string{open})
	require.Len(t, failures, 1)
	link := newDir(t) + "/link"
	require.NoError(t, os.Symlink(newDir(t), link))
	_, err = status.Serve(link, status.Handlers{})
	require.ErrorContains(t, err, "is not a directory")
	if os.Geteuid() != 0 {
		t.Skip("missing: root, to give a directory away")
	}
	strange := newDir(t)
	require.NoError(t, os.Chown(strange, 12345, 12345))
	_, err = status.Serve(strange, status.Handlers{})
	require.ErrorContains(t, err, "is owned by user 12345")
}

// TestOtherUsersAreRefused has another user come to the socket, for whom the directory was
// opened by mistake.
func TestOtherUsersAreRefused(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("missing: root, to start another user's program")
	}
	dir := newDir(t)
	s, err := status.Serve(dir, status.Handlers{
		Status: says(`{"version":1,"name":"secret"}`),
		Dump:   func(_ string, w io.Writer, _ <-chan struct{}) { io.WriteString(w, "secret") },
	})
	require.NoError(t, err)
	t.Cleanup(func() { s.Close() })
	self, err := os.Executable()
	require.NoError(t, err)
	binary, err := os.ReadFile(self)
	require.NoError(t, err)
	public := newDir(t) // the other user may not enter go test's
	require.NoError(t, os.Chmod(public, 0o755))
	program := filepath.Join(public, "collect.test")
	require.NoError(t, os.WriteFile(program, binary, 0o755))
	read := func(uid uint32, command string) string {
		cmd := exec.Command(program)
		cmd.Dir = "/"
		cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0", "STATUS_READ="+s.Path(), "STATUS_COMMAND="+command)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		return string(out)
	}
	require.Contains(t, read(12345, "status\n"), "permission denied")
	require.NoError(t, os.Chmod(dir, 0o777))
	require.NoError(t, os.Chmod(s.Path(), 0o777))
	for _, command := range []string{"", "status\n", "dump \n"} {
		require.Contains(t, read(0, command), "secret", "%q", command)
		require.NotContains(t, read(12345, command), "secret", "%q", command)
	}
	require.Contains(t, read(0, "reboot\n"), "no such command")
}
