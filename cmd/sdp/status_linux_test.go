package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unicode"

	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/internal/status"
	"github.com/gosdp/gosdp/internal/status/collect"
	"github.com/gosdp/gosdp/sdp"
)

// TestAsProgram is a program whose connections are listed: it prints its address, and serves clients. It
// sends back each message "p" with which a client begins.
func TestAsProgram(t *testing.T) {
	if os.Getenv("GOSDP_TEST_PROGRAM") == "" {
		return
	}
	lc := sdp.ListenConfig{Config: &sdp.Config{Logger: slog.New(slog.NewTextHandler(os.Stdout, nil))}}
	l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("listening at", l.Addr())
	for {
		c, err := l.Accept()
		if err != nil {
			os.Exit(1)
		}
		go func() {
			read, _ := strconv.ParseInt(os.Getenv("GOSDP_TEST_READ"), 10, 64)
			b := make([]byte, 1000)
			n, err := c.Read(b)
			for ; err == nil && string(b[:n]) == "p"; n, err = c.Read(b) {
				c.Write(b[:n])
			}
			io.CopyN(io.Discard, c, cmp.Or(read, 1000)-int64(n))
			time.Sleep(time.Hour) // what follows stays unread
		}()
	}
}

// program starts such a program, and makes a connection to it that has moved to shared memory.
func program(t *testing.T, environment ...string) (dir string, p *process, c net.Conn) {
	t.Helper()
	dir, p, address := serving(t, environment...)
	c, err := sdp.DialTimeout("sdp", address, patience)
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	require.Eventually(t, func() bool {
		_, err := c.Write([]byte("p"))
		require.NoError(t, err)
		_, err = io.ReadFull(c, make([]byte, 1))
		require.NoError(t, err)
		return c.(*sdp.Conn).Stats().ShmReceived > 0
	}, patience, time.Millisecond)
	return dir, p, c
}

// serving starts such a program with its status in a directory of its own.
func serving(t *testing.T, environment ...string) (dir string, p *process, address string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "sdp") // t.TempDir's names are too long for a socket
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestAsProgram$")
	cmd.Env = append(os.Environ(), "GOSDP_TEST_PROGRAM=1", "SDP_STATUS="+dir)
	cmd.Env = append(cmd.Env, environment...)
	p = startTool(t, cmd)
	_, address, _ = strings.Cut(p.line(t, "listening at"), "listening at ")
	return dir, p, address
}

func tool(t *testing.T, args ...string) (stdout, stderr string, status int) {
	t.Helper()
	var errs strings.Builder
	cmd := toolCommand(t, args...)
	cmd.Stderr = &errs
	out, _ := cmd.Output()
	return string(out), errs.String(), cmd.ProcessState.ExitCode()
}

func TestStatShowsAnotherProgram(t *testing.T) {
	dir, p, c := program(t)
	_, err := c.Write(make([]byte, 5000))
	require.NoError(t, err)
	var listed []status.Program
	require.Eventually(t, func() bool {
		out, _, code := tool(t, "stat", "-json", "-dir", dir)
		require.Zero(t, code)
		listed = nil
		require.NoError(t, json.Unmarshal([]byte(out), &listed))
		return len(listed) == 1 && len(listed[0].Conns) == 1 && listed[0].Conns[0].Unread == 4000
	}, patience, time.Millisecond)
	require.Equal(t, p.Process.Pid, listed[0].PID)
	shown, sent := listed[0].Conns[0], c.(*sdp.Conn).Stats()
	require.Equal(t, sent.Sent()-4000, shown.Received)
	require.Equal(t, [2]string{"shm", "ring"}, [2]string{shown.Device, shown.Mode})
	require.EqualValues(t, 1, shown.Moves)
	require.Empty(t, shown.OnTCP)

	out, _, _ := tool(t, "stat", "-dir", dir)
	require.Contains(t, out, "PROGRAM")
	require.Contains(t, out, fmt.Sprintf("sdp.test/%d", p.Process.Pid))
	require.Contains(t, out, c.LocalAddr().String())
	require.Contains(t, out, "4.00 kB")
	out, _, _ = tool(t, "stat", "-dir", dir, "-filter", "no such program")
	require.Equal(t, 1, strings.Count(out, "\n"), "%s", out)

	for filter, want := range map[string]int{"no such program": 0, c.LocalAddr().String(): 1, fmt.Sprintf("sdp.test/%d", p.Process.Pid): 1} {
		out, _, _ = tool(t, "stat", "-json", "-dir", dir, "-filter", filter)
		require.NoError(t, json.Unmarshal([]byte(out), &listed))
		require.Len(t, listed, want, filter)
	}

	p.Process.Kill()
	p.Wait()
	_, errs, _ := tool(t, "stat", "-dir", dir)
	require.Contains(t, errs, "program exited")
}

// TestStatCountsPlainConnections by their reason, and names a program that has no others.
func TestStatCountsPlainConnections(t *testing.T) {
	dir, p, address := serving(t, "SDP_DEVICES=tcp")
	out, _, _ := tool(t, "stat", "-interval", "0", "-dir", dir)
	require.Contains(t, out, fmt.Sprintf("sdp.test/%d: no connection so far\n", p.Process.Pid))
	for range 2 {
		c, err := net.Dial("tcp", address)
		require.NoError(t, err)
		defer c.Close()
		_, err = c.Write([]byte("p"))
		require.NoError(t, err)
		_, err = io.ReadFull(c, make([]byte, 1)) // it was accepted
		require.NoError(t, err)
	}
	out, _, _ = tool(t, "stat", "-interval", "0", "-dir", dir)
	require.Contains(t, out, fmt.Sprintf("sdp.test/%d: plain TCP so far: 2 accepted (off 2)\n", p.Process.Pid))
	require.Equal(t, " 3 dialled (off 1, other_host 2)", plainCounts("dialled", map[string]uint64{"other_host": 2, "off": 1}))
}

// TestStatShowsConnectionsOnTCP, and why they are there.
func TestStatShowsConnectionsOnTCP(t *testing.T) {
	dir, _, address := serving(t)
	c, err := net.Dial("tcp", address)
	require.NoError(t, err)
	defer c.Close()
	_, err = c.Write([]byte("p"))
	require.NoError(t, err)
	_, err = io.ReadFull(c, make([]byte, 1))
	require.NoError(t, err)
	out, _, code := tool(t, "stat", "-dir", dir, "-interval", "0", "-filter", "too little traffic")
	require.Zero(t, code)
	require.Regexp(t, `(?m)^sdp.test/\d+ +tcp .* `+regexp.QuoteMeta(c.LocalAddr().String())+` .* 1 B +1 B +0 B +0 +- +- +- +too little traffic$`, out)
}

// TestJSONDoesNotControlATerminal: a program's text is printed as it is, but for characters that do
// not print, which are escaped.
func TestJSONDoesNotControlATerminal(t *testing.T) {
	dir, err := os.MkdirTemp("", "sdp")
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	const name = "é\"\\ \x1b\x7f\u0080\u009b\u00ad\u200b\u202e\u2066\ufeff\U000e0001\U0001f600"
	s, err := status.Serve(dir, status.Handlers{Status: func(w io.Writer) error {
		return json.NewEncoder(w).Encode(status.Program{Version: status.Version, Name: name, Conns: status.Conns{}})
	}})
	require.NoError(t, err)
	t.Cleanup(func() { s.Close() })
	out, _, code := tool(t, "stat", "-json", "-dir", dir)
	require.Zero(t, code)
	require.Contains(t, out, "é")
	require.Contains(t, out, `\u202e`)
	for _, r := range out {
		require.True(t, r == '\n' || unicode.IsPrint(r), "%U in %s", r, out)
	}
	var listed []status.Program
	require.NoError(t, json.Unmarshal([]byte(out), &listed))
	require.Equal(t, name, listed[0].Name)
}

func TestTop(t *testing.T) {
	dir, _, c := program(t)
	out, _, code := tool(t, "top", "-dir", dir, "-n", "2", "-interval", "50ms")
	require.Zero(t, code)
	require.Equal(t, 2, strings.Count(out, "1 programs, 1 connections"), "%s", out)
	require.Equal(t, 2, strings.Count(out, c.LocalAddr().String()))
	for _, args := range [][]string{{"-sort", "colour"}, {"-interval", "1ms"}, {"x"}} {
		_, errs, code := tool(t, append([]string{"top"}, args...)...)
		require.Equal(t, 2, code, "%v", args)
		require.Contains(t, errs, "sdp top: ")
	}
}

// TestTopWithoutATerminal has rates in its first table, and is ended in good order.
func TestTopWithoutATerminal(t *testing.T) {
	dir, _, c := program(t, "GOSDP_TEST_READ=1000000000000")
	var sending sync.WaitGroup
	sending.Go(func() {
		for b := make([]byte, 100_000); ; {
			if _, err := c.Write(b); err != nil {
				return
			}
		}
	})
	defer sending.Wait()
	defer c.Close()
	once := toolCommand(t, "top", "-dir", dir, "-n", "1", "-interval", "1h")
	once.Env = append(once.Env, "GOSDP_TEST_RATE=2s") // in which the sender has its turn on any machine
	text, err := once.Output()
	require.NoError(t, err)
	require.NotRegexp(t, ` in 0 B/s`, string(text))
	require.Regexp(t, ` in [0-9.]+ [kMG]B/s`, string(text))

	out, _, code := tool(t, "stat", "-dir", dir, "-interval", "0")
	require.Zero(t, code)
	require.Regexp(t, `\d+[smh] +- +- `, out, "the rates are not known")

	top := startTool(t, toolCommand(t, "top", "-dir", dir, "-interval", "1h"))
	top.line(t, "PROGRAM")
	require.NoError(t, top.Process.Signal(syscall.SIGTERM))
	require.Zero(t, top.status(t))
}

func TestScreen(t *testing.T) {
	var s screen
	s.sort = "rate"
	at := time.Unix(1000, 0)
	programs := func(at time.Time, sent ...uint64) []status.Program {
		p := status.Program{PID: 7, Name: "a\x1b[31m", Time: at}
		for i, n := range sent {
			p.Conns = append(p.Conns, status.Conn{ID: uint64(i), Sent: n, Device: "iwarp", Mode: "bcopy", Opened: at, Local: fmt.Sprint("local", i),
				Declined: map[string]string{"verbs": "no library"}})
		}
		return []status.Program{p}
	}
	s.look(programs(at, 0, 0, 0), nil)
	s.look(programs(at.Add(2*time.Second), 10e6, 30e6, 20e6), []collect.Failure{{Path: "x", Err: io.EOF}})
	lines := s.draw(0, 0)
	require.Contains(t, lines[0], "1 programs, 3 connections, out 30.0 MB/s")
	for i, want := range []string{"local1", "local2", "local0"} {
		require.Contains(t, lines[3+i], want)
		require.Contains(t, lines[3+i], "verbs: no library")
	}
	require.Contains(t, lines[3], "15.0 MB/s")
	require.NotContains(t, strings.Join(lines, ""), "\x1b")
	require.Len(t, s.draw(40, 5), 5)
	for _, line := range s.draw(40, 5) {
		require.LessOrEqual(t, len([]rune(line)), 40)
	}
	for _, k := range []byte("/\x7fé\x7flocal2\n") { // the first has nothing to delete
		require.True(t, s.key(k))
	}
	require.Contains(t, s.draw(0, 0)[0], "1 connections")
	require.True(t, s.key('s'))
	require.Equal(t, "sent", s.sort)
	require.True(t, s.key('p'))
	require.True(t, s.paused)
	require.False(t, s.key('q'))
}

func TestCheck(t *testing.T) {
	out, _, code := tool(t, "check")
	require.Zero(t, code)
	require.Regexp(t, `(?m)^shm +used\niwarp|^shm +used\nverbs`, out, "what there is was not asked for")
	if _, err := os.Stat("/sys/class/infiniband"); err != nil {
		require.NotContains(t, out, "  NO  ", "nothing is missing on a machine without RDMA")
	}
	out, _, _ = tool(t, "check", "-v")
	require.Contains(t, out, "   ok  kernel: ")
	l, err := sdp.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				io.Copy(io.Discard, c)
				c.Close()
			}()
		}
	}()
	address := l.Addr().String()
	out, _, code = tool(t, "check", address)
	require.Zero(t, code)
	require.Equal(t, address+": TCP; moves to shared memory when that pays\n", out)
	out, _, code = tool(t, "check", "-network", "sdp", address)
	require.Zero(t, code)
	require.Equal(t, address+": shared memory from the first byte\n", out)
	out, _, _ = tool(t, "check", "-v", address)
	require.Regexp(t, `(?m)^shm +used$`, out)
	require.Contains(t, out, " to "+address)
	plain, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer plain.Close()
	out, _, code = tool(t, "check", plain.Addr().String())
	require.Equal(t, checkPlain, code)
	require.Contains(t, out, ": plain TCP: the server does not share memory\n")
	require.NoError(t, plain.Close())
	_, _, code = tool(t, "check", plain.Addr().String())
	require.Equal(t, checkUnreachable, code)
	out, _, code = tool(t, "check", "-json", l.Addr().String())
	require.Zero(t, code)
	var report struct {
		Devices []struct{ Name string }
		Path    struct {
			SDP     bool
			Device  string
			MovesTo string `json:"moves_to"`
		}
	}
	require.NoError(t, json.Unmarshal([]byte(out), &report))
	require.Len(t, report.Devices, 3)
	require.True(t, report.Path.SDP)
	require.Equal(t, "tcp", report.Path.Device)
	require.Equal(t, "shm", report.Path.MovesTo)
}

// TestPingIsInterrupted while it measures, and while a server does not answer.
func TestPingIsInterrupted(t *testing.T) {
	p := startTool(t, toolCommand(t, "perf", "-s", "-listen", "127.0.0.1:0"))
	_, address, _ := strings.Cut(p.line(t, "waiting for clients"), "clients at ")
	ping := startTool(t, toolCommand(t, "ping", "-n", "1000000", "-v", "-ways", "tcp,shm", address))
	ping.line(t, "bytes over tcp: 3 in")
	require.NoError(t, ping.Process.Signal(os.Interrupt))
	require.Regexp(t, `^tcp +[1-9]`, ping.line(t, "tcp  "))
	require.Zero(t, ping.status(t))

	silent, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer silent.Close()
	ping = startTool(t, toolCommand(t, "ping", "-ways", "tcp", silent.Addr().String()))
	c, err := silent.Accept()
	require.NoError(t, err)
	defer c.Close()
	_, err = io.ReadFull(c, make([]byte, 1)) // so that it handles signals
	require.NoError(t, err)
	require.NoError(t, ping.Process.Signal(os.Interrupt))
	ping.line(t, "sdp ping: interrupted")
	require.Equal(t, 1, ping.status(t))
}

func TestPerfAndPing(t *testing.T) {
	p := startTool(t, toolCommand(t, "perf", "-s", "-listen", "127.0.0.1:0"))
	_, address, _ := strings.Cut(p.line(t, "waiting for clients"), "clients at ")
	out, _, code := tool(t, "perf", "-time", "50ms", address)
	require.Zero(t, code, "%s", out)
	require.Regexp(t, `(?m)^shm .*x`, out)
	require.Regexp(t, `(?m)^tcp .*1.00x`, out)
	require.Contains(t, out, "not verbs: ")
	out, _, code = tool(t, "ping", "-n", "20", "-json", "-ways", "shm,tcp", address)
	require.Zero(t, code)
	var results []result
	require.NoError(t, json.Unmarshal([]byte(out), &results))
	require.Len(t, results, 2)
	require.Equal(t, 20, results[0].Latency.Count)
	p.Process.Kill()
	p.Wait()
	_, errs, code := tool(t, "ping", "-n", "1", address)
	require.Equal(t, 1, code)
	require.Contains(t, errs, "nothing could be measured")
}
