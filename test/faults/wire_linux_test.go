package faults

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// wire is a network of two hosts: two network namespaces with a TUN device each. This
// process forwards packets between them. It can lose, delay and reorder packets, or drop
// all. tc's netem could do the same, but not every kernel has it.
type wire struct {
	namespaces [2]string
	tuns       [2]*os.File

	loss  atomic.Int64 // lost packets per thousand
	delay atomic.Int64 // maximum delay in nanoseconds; it is random for each packet, which reorders them
	cut   atomic.Bool

	taken, lost atomic.Int64
	working     sync.WaitGroup
}

// wireAddresses are the addresses of the two hosts.
var wireAddresses = [2]string{"10.99.0.1", "10.99.0.2"}

// newWire makes a wire, which ends with the test.
func newWire(t *testing.T) *wire {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("missing: root, to make network namespaces")
	}
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skip("missing: ip (iproute2)")
	}
	if _, err := os.Stat("/dev/net/tun"); err != nil {
		t.Skip("missing: TUN devices: ", err)
	}
	w := new(wire)
	for i := range w.namespaces {
		w.namespaces[i] = fmt.Sprintf("sdp-faults-%d-%d", os.Getpid(), i)
		ip(t, "netns", "add", w.namespaces[i])
		t.Cleanup(func() { exec.Command("ip", "netns", "del", w.namespaces[i]).Run() })
		w.tuns[i] = tun(t, "/run/netns/"+w.namespaces[i])
		ip(t, "-n", w.namespaces[i], "link", "set", "lo", "up")
		ip(t, "-n", w.namespaces[i], "addr", "add", wireAddresses[i]+"/30", "dev", tunName)
		ip(t, "-n", w.namespaces[i], "link", "set", tunName, "up")
	}
	for i, from := range w.tuns {
		to := w.tuns[1-i]
		w.working.Go(func() { w.carry(from, to) })
	}
	t.Cleanup(func() {
		for _, f := range w.tuns {
			f.Close()
		}
		w.working.Wait()
	})
	return w
}

func ip(t *testing.T, arguments ...string) {
	t.Helper()
	said, err := exec.Command("ip", arguments...).CombinedOutput()
	require.NoError(t, err, "ip %s: %s", strings.Join(arguments, " "), said)
}

const tunName = "sdp0"

// tun makes a TUN device in a namespace.
func tun(t *testing.T, namespace string) *os.File {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	home, err := os.Open("/proc/thread-self/ns/net")
	require.NoError(t, err)
	defer home.Close()
	there, err := os.Open(namespace)
	require.NoError(t, err)
	defer there.Close()
	require.NoError(t, unix.Setns(int(there.Fd()), unix.CLONE_NEWNET))
	defer func() { require.NoError(t, unix.Setns(int(home.Fd()), unix.CLONE_NEWNET)) }()
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	require.NoError(t, err)
	request, err := unix.NewIfreq(tunName)
	require.NoError(t, err)
	request.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
	require.NoError(t, unix.IoctlIfreq(fd, unix.TUNSETIFF, request))
	return os.NewFile(uintptr(fd), tunName)
}

// carry forwards the packets of one direction.
func (w *wire) carry(from, to *os.File) {
	var flying sync.WaitGroup
	defer flying.Wait()
	b := make([]byte, 64<<10)
	for {
		n, err := from.Read(b)
		if err != nil {
			return
		}
		w.taken.Add(1)
		if w.cut.Load() || rand.Int64N(1000) < w.loss.Load() {
			w.lost.Add(1)
			continue
		}
		delay := w.delay.Load()
		if delay == 0 {
			to.Write(b[:n])
			continue
		}
		packet := append([]byte(nil), b[:n]...)
		flying.Add(1)
		time.AfterFunc(time.Duration(rand.Int64N(delay)), func() {
			defer flying.Done()
			if !w.cut.Load() {
				to.Write(packet)
			}
		})
	}
}

// through returns the command prefix that runs a program on one of the hosts.
func (w *wire) through(host int) []string {
	return []string{"ip", "netns", "exec", w.namespaces[host]}
}

// startLoad starts a server on one host and a client on the other.
func (w *wire) startLoad(t *testing.T) *load {
	t.Helper()
	few := []string{mostVariable + "=300000"}
	l := &load{server: start(t, "serve iwarp "+wireAddresses[0]+":0", few, w.through(0)...)}
	l.client = start(t, fmt.Sprint("work iwarp ", l.server.first, " ", workers), few, w.through(1)...)
	l.begin(t)
	return l
}

// TestBadNetwork: packets are lost, delayed and reordered, and all are dropped for a while.
// No connection may fail.
func TestBadNetwork(t *testing.T) {
	w := newWire(t)
	l := w.startLoad(t)
	t.Run("loss and reordering", func(t *testing.T) {
		w.loss.Store(10)
		w.delay.Store(int64(4 * time.Millisecond))
		l.client.waitSessions(t, 16*workers)
		w.loss.Store(0)
		w.delay.Store(0)
		assert.Positive(t, w.lost.Load())
		t.Logf("%d packets, %d lost", w.taken.Load(), w.lost.Load())
	})
	t.Run("cut and restored", func(t *testing.T) {
		w.cut.Store(true)
		before := w.lost.Load()
		require.True(t, eventually(func() bool { return w.lost.Load() >= before+2*workers }))
		w.cut.Store(false)
		l.client.waitSessions(t, 2*workers)
	})
	l.checkNoLeaks(t)
	t.Logf("%d sessions", l.requireNoFailures(t))
}

// TestKeepAlive: the network fails for good while a connection is idle, in a Read or in no
// call. The program must notice by the probes of SetKeepAliveConfig, on iwarp as over TCP.
func TestKeepAlive(t *testing.T) {
	w := newWire(t)
	server := start(t, "serve iwarp "+wireAddresses[0]+":0", nil, w.through(0)...)
	plain := start(t, "greet tcp "+wireAddresses[0]+":0", nil, w.through(0)...)
	var ends []*child
	for _, role := range []string{"tcp " + plain.first + " read", "iwarp " + server.first + " read", "iwarp " + server.first + " idle"} {
		ends = append(ends, start(t, "keepalive "+role, nil, w.through(1)...))
	}
	for _, k := range ends {
		require.Equal(t, "up", k.first)
	}
	w.cut.Store(true)
	begin := time.Now()
	for _, k := range ends {
		k.command(t, "cut")
	}
	least := time.Duration(keepAlive.Count)*keepAlive.Interval - keepAlive.Idle/2 // a probe may have been in flight
	for _, k := range ends {
		defer time.AfterFunc(patience, k.kill).Stop()
		line := k.line(t)
		took := time.Since(begin)
		t.Logf("%v: %s", took.Round(time.Millisecond), line)
		assert.Contains(t, line, syscall.ETIMEDOUT.Error())
		assert.Contains(t, line, "timeout: true")
		assert.Greater(t, took, least)
	}
}

// TestCutUnderLoad: the network fails for good while a program writes. Keepalive does not
// help, because TCP is retransmitting. A deadline must end the Write, and Close must
// return if linger is 0.
func TestCutUnderLoad(t *testing.T) {
	w := newWire(t)
	server := start(t, "greet iwarp "+wireAddresses[0]+":0", nil, w.through(0)...)
	k := start(t, "cut iwarp "+server.first, nil, w.through(1)...)
	require.Equal(t, "up", k.first)
	require.True(t, eventually(func() bool { return w.taken.Load() > 100 }), "it writes")
	w.cut.Store(true)
	defer time.AfterFunc(patience, k.kill).Stop()
	line := k.line(t)
	t.Log(line)
	assert.True(t, strings.HasPrefix(line, "true "), "the Write must fail by its deadline")
}

// cutDeadline is the deadline of the Write in TestCutUnderLoad.
const cutDeadline = 2 * time.Second

// keepAlive is the configuration in TestKeepAlive.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: time.Second, Interval: time.Second, Count: 2}
