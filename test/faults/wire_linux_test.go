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

// wire is a network of two hosts: two network namespaces, each with a TUN device,
// and this process between them, which takes the packets from one to the other.
// It loses, delays and reorders them as it is told, or is cut. Not every kernel
// has tc's netem, which would do the same.
type wire struct {
	namespaces [2]string
	tuns       [2]*os.File

	loss  atomic.Int64 // packets of a thousand that are lost
	delay atomic.Int64 // nanoseconds that a packet takes at most; each its own, which reorders them
	cut   atomic.Bool

	taken, lost atomic.Int64
	working     sync.WaitGroup
}

// The addresses of the two hosts.
var wireAddresses = [2]string{"10.99.0.1", "10.99.0.2"}

// newWire makes one, which ends with the test.
func newWire(t *testing.T) *wire {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root, to make network namespaces")
	}
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skip("ip of iproute2 is missing")
	}
	if _, err := os.Stat("/dev/net/tun"); err != nil {
		t.Skip("the kernel's TUN devices are missing: ", err)
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

// carry takes the packets of one direction over.
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

// through is how a program is run on one of the hosts.
func (w *wire) through(host int) []string {
	return []string{"ip", "netns", "exec", w.namespaces[host]}
}

// startLoad starts a server on the one host and a client on the other.
func (w *wire) startLoad(t *testing.T) *load {
	t.Helper()
	few := []string{mostVariable + "=300000"}
	l := &load{server: start(t, "serve iwarp "+wireAddresses[0]+":0", few, w.through(0)...)}
	l.client = start(t, fmt.Sprint("work iwarp ", l.server.first, " ", workers), few, w.through(1)...)
	l.begin(t)
	return l
}

// TestBadNetwork loses, delays and reorders packets, and is cut for a moment: no
// connection fails.
func TestBadNetwork(t *testing.T) {
	w := newWire(t)
	l := w.startLoad(t)
	t.Run("loss and reordering", func(t *testing.T) {
		w.loss.Store(10)
		w.delay.Store(int64(4 * time.Millisecond))
		l.client.more(t, 16*workers)
		w.loss.Store(0)
		w.delay.Store(0)
		assert.Positive(t, w.lost.Load())
		t.Logf("%d packets, %d lost", w.taken.Load(), w.lost.Load())
	})
	t.Run("cut and restored", func(t *testing.T) {
		w.cut.Store(true)
		time.Sleep(time.Second)
		w.cut.Store(false)
		l.client.more(t, 2*workers)
	})
	l.leavesNothing(t)
	t.Logf("%d sessions", l.good(t))
}

// TestKeepAlive has the wire be cut for good under a connection on which nothing
// moves. What SetKeepAliveConfig says is what it takes for the program to learn
// of it, on iwarp as with package net's TCP, in a Read and in no call.
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
	time.Sleep(200 * time.Millisecond) // what the connection has had to say is acknowledged
	w.cut.Store(true)
	begin := time.Now()
	limit := keepAlive.Idle + time.Duration(keepAlive.Count)*keepAlive.Interval
	for _, k := range ends {
		// One that never learns of it would keep the test, and its networks.
		defer time.AfterFunc(limit+5*time.Second, k.kill).Stop()
		line := k.line(t)
		took := time.Since(begin)
		t.Logf("%v: %s", took.Round(time.Millisecond), line)
		assert.Contains(t, line, syscall.ETIMEDOUT.Error())
		assert.Contains(t, line, "timeout: true")
		assert.Greater(t, took, limit-keepAlive.Idle*3/2) // a probe may have been under way
		assert.Less(t, took, limit+2*time.Second)
	}
}

// TestCutUnderLoad has the wire be cut for good while a program writes, where no
// keepalive helps, since TCP is busy with sending again: a deadline ends the Write,
// and Close ends the rest, at once if it is not to linger.
func TestCutUnderLoad(t *testing.T) {
	w := newWire(t)
	server := start(t, "greet iwarp "+wireAddresses[0]+":0", nil, w.through(0)...)
	k := start(t, "cut iwarp "+server.first, nil, w.through(1)...)
	require.Equal(t, "up", k.first)
	time.Sleep(300 * time.Millisecond)
	w.cut.Store(true)
	line := k.line(t)
	t.Log(line)
	var write, closing time.Duration
	var deadline bool
	var wrote, closed string
	_, err := fmt.Sscanf(line, "%s %t %s", &wrote, &deadline, &closed)
	require.NoError(t, err, line)
	write, err = time.ParseDuration(wrote)
	require.NoError(t, err)
	closing, err = time.ParseDuration(closed)
	require.NoError(t, err)
	assert.True(t, deadline, "the Write ends because its deadline has passed")
	assert.Less(t, write, cutDeadline+2*time.Second)
	assert.Less(t, closing, time.Second)
}

// cutDeadline is when TestCutUnderLoad's program wants its Write to end.
const cutDeadline = 2 * time.Second

// keepAlive is what the test configures.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: time.Second, Interval: time.Second, Count: 2}
