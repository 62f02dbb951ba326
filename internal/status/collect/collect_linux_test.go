//go:build linux

package collect

import (
	"context"
	"errors"
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
	"testing/iotest"
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

// full returns the document of a program with many connections.
func full(t *testing.T, conns int) string {
	t.Helper()
	text := strings.Repeat("x", 80)
	c := status.Conn{Local: text, Remote: text, Device: "shm", Mode: "zcopy", Sent: 1 << 62, Declined: map[string]string{"verbs": text}}
	p := status.Program{Version: status.Version, Name: "full"}
	for range conns {
		p.Conns = append(p.Conns, c)
	}
	var b strings.Builder
	require.NoError(t, p.Write(&b))
	return b.String()
}

// TestManyConnectionsAreListed of several programs.
func TestManyConnectionsAreListed(t *testing.T) {
	giveTime(t, time.Minute)
	conns := status.MaxListed
	if testing.Short() {
		conns /= 20
	}
	dir, text := newDir(t), full(t, conns)
	for range 4 {
		serve(t, dir, says(text))
	}
	programs, _ := collectUntil(t, dir)
	require.Len(t, programs, 4)
	for _, p := range programs {
		require.Len(t, p.Conns, conns)
	}
}

// TestDecodingIsBounded: what takes too long is left out, and named. No user's programs wait for all
// programs of another.
func TestDecodingIsBounded(t *testing.T) {
	giveTime(t, 0)
	many, few := newDir(t), newDir(t)
	serve(t, many, says(full(t, 100)))
	_, failures := Collect([]string{many})
	require.Len(t, failures, 1)
	require.ErrorIs(t, failures[0].Err, errLong)
	_, err := decode([]byte(`{"version":1,"connections":[{}`+strings.Repeat(",{}", maxConns-1)+`]}`), maxConns, time.Now().Add(time.Millisecond))
	require.ErrorIs(t, err, errLong)
	a := func(dir string, n int) answer {
		return answer{socket: socket{&directory{path: dir}, fmt.Sprint(n)}, text: make([]byte, n)}
	}
	var order []string
	for _, a := range inTurns([]*visit{{answers: []answer{a(many, 3), a(many, 1), a(many, 2)}}, {answers: []answer{a(few, 4)}}}) {
		order = append(order, a.socket.path())
	}
	require.Equal(t, []string{many + "/1", few + "/4", many + "/2", many + "/3"}, order)
}

func TestConnectionsAreBounded(t *testing.T) {
	_, err := decodeText(`{"version":1,"connections":[{}` + strings.Repeat(",{}", maxConns) + `]}`)
	require.ErrorContains(t, err, "more than 20000 connections")
	p, err := decodeText(`{"version":1,"pid":7,"connections":[{},{"id":3}]}`)
	require.NoError(t, err)
	require.Equal(t, status.Program{Version: 1, PID: 7, Conns: status.Conns{{}, {ID: 3}}}, p)
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

func TestTextsAreShort(t *testing.T) {
	long := strings.Repeat("x", 10_000)
	p, err := decodeText(`{"version":1,"name":"` + long + `","connections":[{"local":"` + long + `","declined":{"shm":"` + long + `"}}]}`)
	require.NoError(t, err)
	require.Len(t, p.Name, maxText)
	require.Len(t, p.Conns[0].Local, maxText)
	require.Len(t, p.Conns[0].Declined["shm"], maxText)
}

// TestMapsAreBounded: neither a connection nor a program names any number of devices.
func TestMapsAreBounded(t *testing.T) {
	members := func(n int, value string) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, `,"%d":%s`, i, value)
		}
		return "{" + strings.TrimPrefix(b.String(), ",") + "}"
	}
	declined := func(object string) string { return `{"version":1,"connections":[{"declined":` + object + `}]}` }
	pinned := func(object string) string { return `{"version":1,"pinned":` + object + `}` }
	for _, v := range []struct{ text, want string }{
		{declined(members(maxDeclined, `"x"`)), ""},
		{declined(members(maxDeclined+1, `"x"`)), "more than 8 devices"},
		{declined("null"), ""},
		{declined("7"), "not an object"},
		{declined(`{"shm":7}`), "cannot unmarshal"},
		{pinned(members(maxPinned, "1")), ""},
		{pinned(members(maxPinned+1, "1")), "more than 64 devices"},
	} {
		_, err := decodeText(v.text)
		if v.want == "" {
			require.NoError(t, err, v.text)
		} else {
			require.ErrorContains(t, err, v.want, v.text)
		}
	}
	long := strings.Repeat("x", 10_000)
	p, err := decodeText(declined(`{"` + long + `":""}`))
	require.NoError(t, err)
	require.Equal(t, map[string]string{long[:maxKey]: ""}, p.Conns[0].Declined)
	p, err = decodeText(pinned(`{"` + long + `":7}`))
	require.NoError(t, err)
	require.Equal(t, map[string]int64{long[:maxKey]: 7}, p.Pinned)
}

// TestProgramsOfAUserAreBounded: neither long answers nor many connections add up without limit.
func TestProgramsOfAUserAreBounded(t *testing.T) {
	giveTime(t, time.Minute)
	const document, user, users = 1 << 20, 4, 4 // MB
	all := newBudget(user * users << 20)
	long, short := strings.Repeat(" ", document), strings.Repeat(" ", 1000)
	for range users { // use up their share
		b := budgets{newBudget(user << 20), all}
		for range 5 { // what is refused is given back
			_, err := read(io.MultiReader(strings.NewReader(long), iotest.ErrReader(io.ErrUnexpectedEOF)), b)
			require.ErrorIs(t, err, io.ErrUnexpectedEOF)
		}
		for range user {
			_, err := read(strings.NewReader(long), b)
			require.NoError(t, err)
		}
		_, err := read(strings.NewReader(short), b)
		require.ErrorContains(t, err, "total size of answers exceeds 4 MB")
	}
	b := budgets{newBudget(user << 20), all}
	_, err := read(strings.NewReader(short), b)
	require.ErrorContains(t, err, "total size of answers exceeds 16 MB")
	_, err = read(strings.NewReader(strings.Repeat(" ", status.MaxDocument+1)), budgets{newBudget(maxUserBytes), newBudget(maxAllBytes)})
	require.ErrorContains(t, err, "answer exceeds 8 MB")

	many := []byte(`{"version":1,"connections":[{}` + strings.Repeat(",{}", maxConns-1) + `]}`)
	var answers []answer
	for range 8 {
		d := &directory{}
		for range 3 {
			answers = append(answers, answer{socket: socket{d, "x"}, text: many})
		}
	}
	listed, failures := decodeAll(answers)
	require.Len(t, listed, maxAllConns/maxConns)
	require.ErrorIs(t, failures[0].Err, errMany)
	listed, _ = decodeAll(answers[3:6])
	require.Empty(t, listed, "the texts are kept")
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

func TestManyClientsAreBounded(t *testing.T) {
	dir := newDir(t)
	hold := make(chan struct{})
	s := serve(t, dir, func(io.Writer) error { <-hold; return nil })
	var clients []net.Conn
	closed := 0
	for range 20 {
		c, err := net.Dial("unix", s.Path())
		require.NoError(t, err)
		defer c.Close()
		clients = append(clients, c)
	}
	for _, c := range clients[4:] {
		c.SetReadDeadline(time.Now().Add(time.Minute))
		if _, err := c.Read(make([]byte, 1)); err == io.EOF {
			closed++
		}
	}
	require.Equal(t, 20-4, closed)
	close(hold)
}

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
