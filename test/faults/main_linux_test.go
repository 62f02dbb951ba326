package faults

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	_ "github.com/gosdp/gosdp/rdma/verbs"
	"github.com/gosdp/gosdp/sdp"
	"github.com/gosdp/gosdp/test/traffic"
)

const (
	// roleVariable makes the test binary one of the processes that things happen
	// to.
	roleVariable = "FAULTS_ROLE"
	// collectVariable has it collect garbage all the time.
	collectVariable = "FAULTS_COLLECT"
	// mostVariable says how many bytes a session has each way at most.
	mostVariable = "FAULTS_MOST"
	// devicesVariable and addressVariable have what is not about certain devices run
	// on others, with commas between, at another address: in the lab, on its verbs.
	devicesVariable = "FAULTS_DEVICES"
	addressVariable = "FAULTS_ADDRESS"
)

func TestMain(m *testing.M) {
	if role := os.Getenv(roleVariable); role != "" {
		beChild(strings.Fields(role))
		return
	}
	goleak.VerifyTestMain(m)
}

// deviceNames are what the tests run on, and here is where servers listen.
var (
	deviceNames = strings.Split(cmp.Or(os.Getenv(devicesVariable), "iwarp,shm"), ",")
	here        = net.JoinHostPort(cmp.Or(os.Getenv(addressVariable), "127.0.0.1"), "0")
)

// onEachDevice runs a test on each.
func onEachDevice(t *testing.T, f func(t *testing.T, device string)) {
	for _, device := range deviceNames {
		t.Run(device, func(t *testing.T) { f(t, device) })
	}
}

// config is for a list of devices. It has times that a machine under load does not
// reach.
func config(device string) *sdp.Config {
	return &sdp.Config{
		Devices: strings.Split(device, ","), ReplyTimeout: time.Minute, HandshakeTimeout: time.Minute, StepUpTimeout: time.Minute,
	}
}

// The roles:
//
//	serve DEVICE ADDRESS         listens, prints where, and serves sessions
//	work DEVICE ADDRESS WORKERS  runs sessions there until its standard input ends
//	greet DEVICE ADDRESS         accepts connections, "tcp" plain ones, and reads them
//	keepalive DEVICE ADDRESS HOW prints how a connection ends whose peer is gone
//	far-serve NETWORK ADDRESS    listens with what the environment says; see beFarServer
//	far-dial NETWORK ADDRESS N   dials it N times; see beFarClient
//	default ADDRESS              listens with the default configuration, and echoes
//	sandboxed HOW ADDRESS        see beSandboxed
//	crowded WHAT ADDRESS N       see beCrowded
//	cut DEVICE ADDRESS           prints how a Write ends whose peer is gone, and Close
//
// The first two answer the line "report" on their standard input with how many sessions
// have ended well, how many did not, what was wrong, and what they hold; and the
// second one "session DEVICE" with what it had a session over, or why it had none.
func beChild(role []string) {
	if os.Getenv(collectVariable) != "" {
		debug.SetGCPercent(1)
		go func() {
			for {
				runtime.GC()
			}
		}()
	}
	var w work
	switch role[0] {
	case "serve":
		accepting(role, func(c net.Conn) {
			w.session(func() (traffic.Result, error) { return traffic.Serve(c) })
		})
	case "greet":
		accepting(role, func(c net.Conn) { io.Copy(io.Discard, c) })
	case "far-serve":
		go beFarServer(role[1], role[2])
	case "far-dial":
		dials, _ := strconv.Atoi(role[3])
		go beFarClient(role[1], role[2], dials)
	case "default":
		serveDefault(role[1])
	case "sandboxed":
		go beSandboxed(role[1], role[2])
	case "crowded":
		go beCrowded(role[1], role[2], role[3])
	case "keepalive":
		go beKeptAlive(role[1], role[2], role[3])
	case "cut":
		go beCut(role[1], role[2])
	case "work":
		workers, _ := strconv.Atoi(role[3])
		fmt.Println("working")
		for i := range workers {
			go func() {
				for n := uint64(0); ; n++ {
					if !w.wait() {
						continue
					}
					w.session(func() (traffic.Result, error) { return oneSession(role[1], role[2], uint64(i)<<32|n) })
				}
			}()
		}
	}
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		command, argument, _ := strings.Cut(lines.Text(), " ")
		switch command {
		case "session":
			fmt.Println(sessionOver(argument, role[2]))
		case "pause":
			w.paused.Store(true)
		case "go":
			w.paused.Store(false)
		case "report":
			h := traffic.Holds()
			fmt.Println(w.active.Load(), w.good.Load(), w.bad.Load(), h.Goroutines, h.Descriptors, h.Areas, h.Memory, w.said())
		}
	}
	os.Exit(0)
}

// accepting listens where the role says, prints that, and has each connection
// served until the process ends.
func accepting(role []string, serve func(net.Conn)) {
	ln, err := listen(role[1], role[2])
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println(ln.Addr())
	go func() {
		for {
			c, err := ln.Accept()
			if errors.Is(err, syscall.EMFILE) { // as a server of package net must, and net/http does
				time.Sleep(5 * time.Millisecond)
				continue
			}
			if err != nil {
				fmt.Fprintln(os.Stderr, "accept:", err)
				os.Exit(1)
			}
			go serve(c)
		}
	}()
}

// listen and dial are package net's on the device "tcp".
func listen(device, address string) (net.Listener, error) {
	if device == "tcp" {
		return net.Listen("tcp", address)
	}
	lc := sdp.ListenConfig{Config: config(device)}
	return lc.Listen(context.Background(), "sdp", address)
}

func dial(device, address string) (net.Conn, error) {
	if device == "tcp" {
		return net.Dial("tcp", address)
	}
	return (&sdp.Dialer{Config: config(device)}).Dial("sdp", address)
}

// beCut writes, and prints how long that goes on after a time without headway,
// whether it ended by its deadline, and how long Close takes.
func beCut(device, address string) {
	c, err := dial(device, address)
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("up")
	var last time.Time
	b := make([]byte, 100_000)
	for err == nil {
		last = time.Now()
		c.SetWriteDeadline(last.Add(cutDeadline))
		_, err = c.Write(b)
	}
	wrote := time.Since(last)
	c.(interface{ SetLinger(int) error }).SetLinger(0)
	begin := time.Now()
	c.Close()
	fmt.Println(wrote, errors.Is(err, os.ErrDeadlineExceeded), time.Since(begin), err)
}

// beKeptAlive has a connection on which nothing moves, in a Read or in no call,
// and prints how it ends.
func beKeptAlive(device, address, how string) {
	c, err := dial(device, address)
	if err == nil {
		err = c.(interface {
			SetKeepAliveConfig(net.KeepAliveConfig) error
		}).SetKeepAliveConfig(keepAlive)
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("up")
	if how == "idle" { // the library is to find it, so that it is known at once
		time.Sleep(keepAlive.Idle + time.Duration(keepAlive.Count)*keepAlive.Interval + time.Second)
		c.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
	}
	_, err = c.Read(make([]byte, 1))
	var n net.Error
	fmt.Printf("%s, %s: %v, timeout: %t\n", device, how, err, errors.As(err, &n) && n.Timeout())
}

// oneSession dials and runs a session.
func oneSession(device, address string, seed uint64) (traffic.Result, error) {
	most := 4 << 20
	if text := os.Getenv(mostVariable); text != "" {
		most, _ = strconv.Atoi(text)
	}
	c, err := dial(device, address)
	if err != nil {
		return traffic.Result{}, err
	}
	if over := c.(*sdp.Conn).Device(); !slices.Contains(strings.Split(device, ","), over) {
		c.Close()
		return traffic.Result{}, &traffic.WrongError{What: "it is over " + over}
	}
	return traffic.Client(c, traffic.Spec{Seed: seed, Most: uint32(most)})
}

// sessionOver has a session of few bytes, and says over what, or why not.
func sessionOver(device, address string) string {
	c, err := dial(device, address)
	if err != nil {
		return err.Error()
	}
	over := c.(*sdp.Conn).Device()
	if _, err := traffic.Client(c, traffic.Spec{Most: 1000}); err != nil {
		return err.Error()
	}
	return over
}

// work is what a child does.
type work struct {
	active, good, bad atomic.Int64
	paused            atomic.Bool

	mu    sync.Mutex
	wrong string // bytes that were wrong: there is no excuse for that
	early int    // ends that came too early: for these there is one, see child.killed
	last  string // error
}

// wait reports that a session may begin, at once or after a moment.
func (w *work) wait() bool {
	if w.paused.Load() {
		time.Sleep(time.Millisecond)
		return false
	}
	return true
}

func (w *work) session(run func() (traffic.Result, error)) {
	w.active.Add(1)
	defer w.active.Add(-1)
	_, err := run()
	if err == nil {
		w.good.Add(1)
		return
	}
	w.bad.Add(1)
	var wrong *traffic.WrongError
	w.mu.Lock()
	w.last = err.Error()
	if errors.As(err, &wrong) {
		w.wrong = err.Error()
	}
	if early := new(traffic.EarlyEndError); errors.As(err, &early) {
		w.early++
	}
	w.mu.Unlock()
	time.Sleep(time.Millisecond) // what fails at once would fail ten thousand times
}

func (w *work) said() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return fmt.Sprint(w.early, " ", strconv.Quote(w.wrong), " ", strconv.Quote(w.last))
}

// child is such a process.
type child struct {
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stdout *bufio.Reader
	first  string       // what it has said first
	killed bool         // its peers are: their ends may come too early
	wait   func() error // for its end
}

// start starts a child, perhaps through another program.
func start(t *testing.T, role string, environment []string, through ...string) *child {
	t.Helper()
	return startSaying(t, os.Stderr, role, environment, through...)
}

// startSaying starts one whose errors go elsewhere.
func startSaying(t *testing.T, stderr io.Writer, role string, environment []string, through ...string) *child {
	t.Helper()
	argv := append(through, os.Args[0])
	k := &child{cmd: exec.Command(argv[0], argv[1:]...)}
	k.wait = sync.OnceValue(k.cmd.Wait)
	k.cmd.Env = append(append(os.Environ(), roleVariable+"="+role, "GORACE=atexit_sleep_ms=0"), environment...)
	k.cmd.Stderr = stderr
	var err error
	k.stdin, err = k.cmd.StdinPipe()
	require.NoError(t, err)
	out, err := k.cmd.StdoutPipe()
	require.NoError(t, err)
	k.stdout = bufio.NewReader(out)
	require.NoError(t, k.cmd.Start())
	t.Cleanup(k.kill)
	k.first = k.line(t)
	return k
}

func (k *child) kill() {
	k.cmd.Process.Kill()
	k.stdin.Close()
	k.wait()
}

func (k *child) line(t *testing.T) string {
	t.Helper()
	line, err := k.stdout.ReadString('\n')
	require.NoError(t, err, "the process has ended: %q", line)
	return strings.TrimSuffix(line, "\n")
}

func (k *child) tell(t *testing.T, what string) {
	t.Helper()
	_, err := io.WriteString(k.stdin, what+"\n")
	require.NoError(t, err)
}

// session has one over the devices.
func (k *child) session(t *testing.T, devices string) string {
	t.Helper()
	k.tell(t, "session "+devices)
	return k.line(t)
}

// within asks until it is so, or the time is over. Unlike testify's Eventually it
// asks in the test's own goroutine, one question after the other.
func within(d time.Duration, so func() bool) bool {
	for until := time.Now().Add(d); ; time.Sleep(50 * time.Millisecond) {
		if so() {
			return true
		}
		if time.Now().After(until) {
			return false
		}
	}
}

// report is what a child answers.
type report struct {
	active, good, bad int
	held              traffic.Held
	early             int
	wrong, last       string
}

func (k *child) report(t *testing.T) report {
	t.Helper()
	r, err := k.ask()
	require.NoError(t, err)
	require.Empty(t, r.wrong, "bytes that are wrong")
	if !k.killed {
		require.Zero(t, r.early, "ends that came too early: %s", r.last)
	}
	return r
}

// ask is report for one that may have ended.
func (k *child) ask() (r report, err error) {
	if _, err := io.WriteString(k.stdin, "report\n"); err != nil {
		return r, err
	}
	line, err := k.stdout.ReadString('\n')
	if err != nil {
		return r, err
	}
	_, err = fmt.Sscanf(line, "%d %d %d %d %d %d %d %d %q %q", &r.active, &r.good, &r.bad,
		&r.held.Goroutines, &r.held.Descriptors, &r.held.Areas, &r.held.Memory, &r.early, &r.wrong, &r.last)
	return r, err
}

// quiet waits until the child has no session under way, and returns its report.
func (k *child) quiet(t *testing.T) (r report) {
	t.Helper()
	require.True(t, within(20*time.Second, func() bool {
		r = k.report(t)
		return r.active == 0
	}), "a session does not end")
	return r
}

// more waits until so many more sessions have ended well.
func (k *child) more(t *testing.T, sessions int) (r report) {
	t.Helper()
	was := k.report(t)
	ok := within(time.Minute, func() bool {
		r = k.report(t)
		return r.good >= was.good+sessions
	})
	require.True(t, ok, "%d more sessions; the last error was %q", sessions, r.last)
	return r
}

// load is a server and a client at work.
type load struct {
	server, client           *child
	serverBefore, heldBefore traffic.Held
}

const workers = 4

// startLoad starts both, has them work a while, and notes what they hold.
func startLoad(t *testing.T, device string, environment ...string) *load {
	t.Helper()
	l := &load{server: start(t, fmt.Sprint("serve ", device, " ", here), environment)}
	l.client = start(t, fmt.Sprint("work ", device, " ", l.server.first, " ", workers), environment)
	l.begin(t)
	return l
}

// begin lets them work a while, and notes what they hold.
func (l *load) begin(t *testing.T) {
	t.Helper()
	l.client.more(t, 2*workers)
	l.client.tell(t, "pause")
	l.heldBefore, l.serverBefore = l.client.quiet(t).held, l.server.quiet(t).held
	l.client.tell(t, "go")
}

// leavesNothing pauses the load, and checks that both processes hold what they
// held at first.
func (l *load) leavesNothing(t *testing.T) {
	t.Helper()
	l.client.tell(t, "pause")
	leftNothing(t, "client", l.client, l.heldBefore)
	leftNothing(t, "server", l.server, l.serverBefore)
	l.client.tell(t, "go")
}

// leftNothing checks that a process comes to hold what it held.
func leftNothing(t *testing.T, name string, k *child, before traffic.Held) {
	t.Helper()
	more := ""
	within(10*time.Second, func() bool {
		more = k.quiet(t).held.More(before, traffic.Slack)
		return more == ""
	})
	require.Empty(t, more, name)
}

// good checks that no session has failed, and returns how many there were.
func (l *load) good(t *testing.T) int {
	t.Helper()
	client, server := l.client.report(t), l.server.report(t)
	require.Zero(t, client.bad, client.last)
	require.Zero(t, server.bad, server.last)
	return client.good
}

// isNetError checks that an error is one of package net's.
func isNetError(t *testing.T, err error) {
	t.Helper()
	var op *net.OpError
	assert.ErrorAs(t, err, &op)
}
