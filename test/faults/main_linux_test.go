package faults

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
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
	"golang.org/x/sys/unix"

	_ "github.com/gosdp/gosdp/rdma/verbs"
	"github.com/gosdp/gosdp/sdp"
	"github.com/gosdp/gosdp/test/traffic"
)

const (
	// roleVariable makes the test binary a child process.
	roleVariable = "FAULTS_ROLE"
	// collectVariable makes a child collect garbage all the time.
	collectVariable = "FAULTS_COLLECT"
	// mostVariable limits the bytes of a session in each direction.
	mostVariable = "FAULTS_MOST"
	// devicesVariable and addressVariable choose other devices, separated by commas, and
	// another address for tests that do not require certain devices. The lab sets them to
	// its verbs devices.
	devicesVariable = "FAULTS_DEVICES"
	addressVariable = "FAULTS_ADDRESS"
)

func TestMain(m *testing.M) {
	if role := os.Getenv(roleVariable); role != "" {
		runChild(strings.Fields(role))
		return
	}
	os.Setenv("SDP_MOVE", "at-once") // sessions are short
	if flag.Parse(); testing.Short() && os.Getenv(mostVariable) == "" {
		os.Setenv(mostVariable, "1000000")
	}
	goleak.VerifyTestMain(m)
}

// deviceNames are the devices under test, and serverAddress is where servers listen.
var (
	deviceNames   = strings.Split(cmp.Or(os.Getenv(devicesVariable), "iwarp,shm"), ",")
	serverAddress = net.JoinHostPort(cmp.Or(os.Getenv(addressVariable), "127.0.0.1"), "0")
)

// onEachDevice runs a test on each device.
func onEachDevice(t *testing.T, f func(t *testing.T, device string)) {
	for _, device := range deviceNames {
		t.Run(device, func(t *testing.T) { f(t, device) })
	}
}

// config returns a configuration for a list of devices. Its timeouts are so long that a
// machine under load does not reach them.
func config(device string) *sdp.Config {
	return &sdp.Config{
		Devices: strings.Split(device, ","), ReplyTimeout: time.Minute, HandshakeTimeout: time.Minute, StepUpTimeout: time.Minute,
	}
}

// The roles:
//
//	serve DEVICE ADDRESS         listens, prints the address, and serves sessions
//	work DEVICE ADDRESS WORKERS  runs sessions until its standard input ends
//	greet DEVICE ADDRESS         accepts connections and reads; "tcp" means plain ones
//	slow DEVICE ADDRESS          accepts connections, echoes single bytes, and reads the rest at 20 KB a second
//	keepalive DEVICE ADDRESS HOW prints how a connection ends after its peer has vanished
//	far-serve NETWORK ADDRESS    see runFarServer
//	far-dial NETWORK ADDRESS N   dials N times; see runFarClient
//	default ADDRESS              listens with the default configuration, and echoes
//	sandboxed HOW ADDRESS        see runSandboxed
//	crowded WHAT ADDRESS N       see runCrowded
//	cut DEVICE ADDRESS           prints how Write and Close end after the peer has vanished
//
// The first two answer the line "report" on their standard input with the numbers of active,
// successful and failed sessions, the resources that they hold, and errors. "work" also
// answers "session DEVICE" with the device that a new session used, or an error. The line "cut"
// tells "keepalive" that the network has failed.
func runChild(role []string) {
	if os.Getenv(collectVariable) != "" {
		debug.SetGCPercent(1)
		go func() {
			for {
				runtime.GC()
			}
		}()
	}
	w := work{cut: make(chan struct{})}
	switch role[0] {
	case "serve":
		accepting(role, func(c net.Conn) {
			w.session(func() (traffic.Result, error) { return traffic.Serve(c) })
		})
	case "greet":
		accepting(role, func(c net.Conn) { io.Copy(io.Discard, c) })
	case "slow":
		accepting(role, func(c net.Conn) {
			for b := make([]byte, 1<<10); ; {
				n, err := c.Read(b)
				switch {
				case err != nil:
					return
				case n == 1:
					c.Write(b[:1])
				default:
					time.Sleep(50 * time.Millisecond)
				}
			}
		})
	case "far-serve":
		go runFarServer(role[1], role[2])
	case "far-dial":
		dials, _ := strconv.Atoi(role[3])
		go runFarClient(role[1], role[2], dials)
	case "default":
		serveDefault(role[1])
	case "sandboxed":
		go runSandboxed(role[1], role[2])
	case "crowded":
		go runCrowded(role[1], role[2], role[3])
	case "keepalive":
		go runKeepAlive(role[1], role[2], role[3], w.cut)
	case "cut":
		go runCut(role[1], role[2])
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
		case "cut":
			close(w.cut)
		case "report":
			h := traffic.HeldNow()
			fmt.Println(w.active.Load(), w.good.Load(), w.bad.Load(), h.Goroutines, h.Descriptors, h.Areas, h.Memory, w.summary())
		}
	}
	os.Exit(0)
}

// accepting listens as the role says, prints the address, and serves connections until the
// process ends.
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
			if errors.Is(err, syscall.EMFILE) { // as net/http does
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

// networkOf returns the network on which a device is used. A connection between two programs of this host moves to
// shared memory on network tcp, and a test that sets SDP_PEERS uses SDP over RDMA there.
func networkOf(device string) string {
	if device == "shm" || os.Getenv("SDP_PEERS") != "" {
		return "tcp"
	}
	return "sdp"
}

// listen and dial use package net for the device "tcp".
func listen(device, address string) (net.Listener, error) {
	if device == "tcp" {
		return net.Listen("tcp", address)
	}
	lc := sdp.ListenConfig{Config: config(device)}
	return lc.Listen(context.Background(), networkOf(device), address)
}

func dial(device, address string) (net.Conn, error) {
	if device == "tcp" {
		return net.Dial("tcp", address)
	}
	return (&sdp.Dialer{Config: config(device)}).Dial(networkOf(device), address)
}

// runCut writes until a Write fails, and closes. Then it prints whether the Write ended by its
// deadline, and the error.
func runCut(device, address string) {
	c, err := dial(device, address)
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("up")
	b := make([]byte, 100_000)
	for err == nil {
		c.SetWriteDeadline(time.Now().Add(cutDeadline))
		_, err = c.Write(b)
	}
	c.(interface{ SetLinger(int) error }).SetLinger(0)
	c.Close()
	fmt.Println(errors.Is(err, os.ErrDeadlineExceeded), err)
}

// runKeepAlive has an idle connection, in a Read or in no call, and prints how it ends. cut is
// closed when the network has failed.
func runKeepAlive(device, address, how string, cut <-chan struct{}) {
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
	// What is not acknowledged would be retransmitted, and keepalive would not begin.
	awaitTCP(c, func(i *unix.TCPInfo) bool { return i.Unacked == 0 })
	fmt.Println("up")
	if how == "idle" { // Read is called when the kernel has given up
		<-cut
		awaitTCP(c, func(i *unix.TCPInfo) bool { return i.State == unix.BPF_TCP_CLOSE })
	}
	_, err = c.Read(make([]byte, 1))
	var n net.Error
	fmt.Printf("%s, %s: %v, timeout: %t\n", device, how, err, errors.As(err, &n) && n.Timeout())
}

// awaitTCP waits until the kernel's state of a connection meets a condition.
func awaitTCP(c net.Conn, condition func(*unix.TCPInfo) bool) {
	raw, err := c.(syscall.Conn).SyscallConn()
	for met := false; err == nil && !met; time.Sleep(time.Millisecond) {
		raw.Control(func(fd uintptr) {
			var i *unix.TCPInfo
			if i, err = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
				met = condition(i)
			}
		})
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
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
	return traffic.Client(c, traffic.Spec{Seed: seed, MaxBytes: uint32(most)})
}

// sessionOver runs a short session and returns its device, or an error's text.
func sessionOver(device, address string) string {
	c, err := dial(device, address)
	if err != nil {
		return err.Error()
	}
	if _, err := traffic.Client(c, traffic.Spec{MaxBytes: 4 << 20}); err != nil {
		return err.Error()
	}
	return carrier(c)
}

// work is the state of a child.
type work struct {
	active, good, bad atomic.Int64
	paused            atomic.Bool
	cut               chan struct{} // closed when the network has failed

	mu    sync.Mutex
	wrong string // the last error about wrong bytes, which is always a failure
	early int    // connections that ended too early, which is allowed if child.killed
	last  string // the last error
}

// wait returns true unless the work is paused. If so, it waits a moment first.
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
	time.Sleep(time.Millisecond) // a session that fails at once must not fail ten thousand times
}

func (w *work) summary() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return fmt.Sprint(w.early, " ", strconv.Quote(w.wrong), " ", strconv.Quote(w.last))
}

// child is a child process.
type child struct {
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stdout *bufio.Reader
	first  string       // its first line of output
	killed bool         // its peers are killed, so connections may end too early
	wait   func() error // waits until it has ended
}

// start starts a child, optionally through another program.
func start(t *testing.T, role string, environment []string, through ...string) *child {
	t.Helper()
	return startSaying(t, os.Stderr, role, environment, through...)
}

// startSaying starts a child with another standard error.
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
	require.NoError(t, err, "the process ended: %q", line)
	return strings.TrimSuffix(line, "\n")
}

func (k *child) command(t *testing.T, what string) {
	t.Helper()
	_, err := io.WriteString(k.stdin, what+"\n")
	require.NoError(t, err)
}

// session makes the child run a session, and returns what carried it or its error.
func (k *child) session(t *testing.T, devices string) string {
	t.Helper()
	k.command(t, "session "+devices)
	return k.line(t)
}

// patience limits a wait for something that must happen. It ends a test that would hang.
const patience = time.Minute

// eventually polls condition until it is true, or patience is at its end. Unlike testify's
// Eventually it calls condition on the test's own goroutine.
func eventually(condition func() bool) bool {
	for until := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		if condition() {
			return true
		}
		if time.Now().After(until) {
			return false
		}
	}
}

// report is a child's answer to "report".
type report struct {
	active, good, bad int
	held              traffic.Held
	early             int
	wrong, last       string
}

func (k *child) report(t *testing.T) report {
	t.Helper()
	r, err := k.tryReport()
	require.NoError(t, err)
	require.Empty(t, r.wrong, "wrong bytes")
	if !k.killed {
		require.Zero(t, r.early, "connections ended too early: %s", r.last)
	}
	return r
}

// tryReport is report for a child that may have ended.
func (k *child) tryReport() (r report, err error) {
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

// waitIdle waits until the child has no active session, and returns its report.
func (k *child) waitIdle(t *testing.T) (r report) {
	t.Helper()
	require.True(t, eventually(func() bool {
		r = k.report(t)
		return r.active == 0
	}), "a session did not end")
	return r
}

// waitSessions waits until the given number of further sessions have succeeded.
func (k *child) waitSessions(t *testing.T, sessions int) (r report) {
	t.Helper()
	was := k.report(t)
	ok := eventually(func() bool {
		r = k.report(t)
		return r.good >= was.good+sessions
	})
	require.True(t, ok, "%d more sessions; the last error was %q", sessions, r.last)
	return r
}

// load is a server and a client that run sessions.
type load struct {
	server, client           *child
	serverBefore, heldBefore traffic.Held
}

const workers = 4

// startLoad starts both and calls begin.
func startLoad(t *testing.T, device string, environment ...string) *load {
	t.Helper()
	l := &load{server: start(t, fmt.Sprint("serve ", device, " ", serverAddress), environment)}
	l.client = start(t, fmt.Sprint("work ", device, " ", l.server.first, " ", workers), environment)
	l.begin(t)
	return l
}

// begin waits for some sessions, and records the resources that both processes hold.
func (l *load) begin(t *testing.T) {
	t.Helper()
	l.client.waitSessions(t, 2*workers)
	l.client.command(t, "pause")
	l.heldBefore, l.serverBefore = l.client.waitIdle(t).held, l.server.waitIdle(t).held
	l.client.command(t, "go")
}

// checkNoLeaks pauses the load, and checks that both processes hold no more than at the
// start.
func (l *load) checkNoLeaks(t *testing.T) {
	t.Helper()
	l.client.command(t, "pause")
	requireNoLeaks(t, "client", l.client, l.heldBefore)
	requireNoLeaks(t, "server", l.server, l.serverBefore)
	l.client.command(t, "go")
}

// requireNoLeaks waits until a process holds no more than before.
func requireNoLeaks(t *testing.T, name string, k *child, before traffic.Held) {
	t.Helper()
	before.Descriptors++ // the socket that looks for peers to share memory with
	more := ""
	eventually(func() bool {
		more = k.waitIdle(t).held.Excess(before, traffic.Slack)
		return more == ""
	})
	require.Empty(t, more, name)
}

// requireNoFailures checks that no session failed, and returns the client's number.
func (l *load) requireNoFailures(t *testing.T) int {
	t.Helper()
	client, server := l.client.report(t), l.server.report(t)
	require.Zero(t, client.bad+server.bad, "client: %d, the last %q; server: %d, the last %q", client.bad, client.last, server.bad, server.last)
	return client.good
}

// isNetError checks that err is a *net.OpError.
func isNetError(t *testing.T, err error) {
	t.Helper()
	var op *net.OpError
	assert.ErrorAs(t, err, &op)
}
