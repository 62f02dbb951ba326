//go:build linux

package shm

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/gosdp/gosdp/rdma"
)

// strangerVariable makes the test binary a process of another user.
const strangerVariable = "SHM_STRANGER"

func TestMain(m *testing.M) {
	switch os.Getenv(strangerVariable) {
	case "flood":
		beFlood()
	case "client":
		beClient()
	default:
		goleak.VerifyTestMain(m)
	}
}

// strangerUID is nobody's on most systems.
const strangerUID = 65533

// stranger is a process of another user. It says something first, and hears by the end of
// its stdin that it is to end.
type stranger struct {
	t     *testing.T
	stdin io.WriteCloser
	lines *bufio.Reader
}

func startStranger(t *testing.T, role string) *stranger {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("missing: root, to be another user")
	}
	cmd := exec.Command("/proc/self/exe") // which the user may not find by its name
	cmd.Env = append(os.Environ(), strangerVariable+"="+role, "GORACE=atexit_sleep_ms=0")
	cmd.Dir = "/"
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: strangerUID, Gid: strangerUID}}
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	err = cmd.Start()
	if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.EACCES) {
		t.Skipf("missing: the right of another user to execute this test: %v", err)
	}
	require.NoError(t, err)
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	s := &stranger{t, stdin, bufio.NewReader(out)}
	require.Equal(t, "ready", s.hear())
	return s
}

// say writes a line to its stdin.
func (s *stranger) say(line string) {
	s.t.Helper()
	_, err := fmt.Fprintln(s.stdin, line)
	require.NoError(s.t, err)
}

// hear returns the next line that it prints.
func (s *stranger) hear() string {
	s.t.Helper()
	line, err := s.lines.ReadString('\n')
	require.NoError(s.t, err)
	return strings.TrimSpace(line)
}

// stop ends it, and returns the rest of what it prints.
func (s *stranger) stop() string {
	s.stdin.Close()
	rest, _ := io.ReadAll(s.lines)
	return strings.TrimSpace(string(rest))
}

// untilStdinEnds is closed then.
func untilStdinEnds() <-chan struct{} {
	over := make(chan struct{})
	go func() {
		defer close(over)
		io.Copy(io.Discard, os.Stdin)
	}()
	return over
}

const gentleVisits = 3

// beFlood connects to the socket of each offer whose name it reads, as often as it can, and
// sends descriptors whose last close blocks; then it prints a line. At the end it prints how
// often it connected, how often the kernel took a descriptor, and how many bytes it was told.
//
// In its first gentleVisits it connects only ten times. That neither fills the backlog nor has
// a kernel without SO_PASSRIGHTS take mostAside descriptors, so the offer is met nevertheless.
//
// An attacker finds the names in /proc/net/unix, which takes as long as there are sockets.
func beFlood() {
	fail := func(err error) {
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
	}
	sinks, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	fail(err)
	fail(unix.SetsockoptInt(sinks, unix.SOL_SOCKET, unix.SO_RCVBUF, 2048))
	fail(unix.Bind(sinks, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	fail(unix.Listen(sinks, 4096))
	at, err := unix.Getsockname(sinks)
	fail(err)
	var ready []int
	prepare := func() {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
		fail(err)
		fail(unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, 4096))
		fail(unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1, Linger: 60}))
		fail(unix.Connect(fd, at))
		fail(unix.SetNonblock(fd, true))
		for {
			if _, err := unix.Write(fd, make([]byte, 1<<16)); err != nil {
				break
			}
		}
		ready = append(ready, fd)
	}
	for range 400 {
		prepare()
	}
	fmt.Println("ready")
	var connected, taken, told int
	var open []int // connections, the oldest first
	says := append([]byte(magic), make([]byte, meetingLen-len(magic))...)
	visits := 0
	for names := bufio.NewScanner(os.Stdin); names.Scan(); fmt.Println("been there") {
		most := backlog + 1
		if visits < gentleVisits {
			most = 10
		}
		visits++
		for range most {
			fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK, 0)
			fail(err)
			if err := unix.Connect(fd, &unix.SockaddrUnix{Name: names.Text()}); err != nil {
				unix.Close(fd) // it is taken, or full
				break
			}
			connected++
			if len(ready) > 0 {
				f := ready[len(ready)-1]
				if unix.Sendmsg(fd, says, unix.UnixRights(f), nil, unix.MSG_NOSIGNAL) == nil {
					taken++
					go unix.Close(f) // it blocks if the victim has closed its own already
					ready = ready[:len(ready)-1]
				}
			}
			unix.Sendmsg(fd, says, nil, nil, unix.MSG_NOSIGNAL)
			open = append(open, fd)
		}
		for len(open) > 200 {
			n, _, _ := unix.Recvfrom(open[0], make([]byte, 100), unix.MSG_DONTWAIT)
			told += max(n, 0)
			unix.Close(open[0])
			open = open[1:]
		}
	}
	fmt.Println(connected, taken, told)
	os.Exit(0)
}

// TestFlood: another user who connects to every offer as soon as it is there, and sends
// descriptors whose closing blocks, does not delay channels of our own user, and is told
// nothing. It may come before the server, and fill the backlog: then there is no channel, nor
// when a kernel without SO_PASSRIGHTS has taken many of the descriptors.
func TestFlood(t *testing.T) {
	onEachKernel(t, func(t *testing.T) {
		p := newPlace(t)
		// once opens a channel, and returns how long that took, without the time in which the
		// name is known and the Request has not come to the server.
		once := func(known func(name string)) (time.Duration, error) {
			ctx, cancel := context.WithTimeout(t.Context(), joinTime)
			defer cancel()
			begin := time.Now()
			made, err := device{}.Offer("", stepConfig)
			if err != nil {
				return time.Since(begin), err
			}
			_, name := halves(made.Ticket())
			pause := time.Now()
			known(name)
			while := time.Since(pause)
			a, b, err := open(ctx, p, made.(*offer), rdma.Peer{})
			took := time.Since(begin) - while
			if err == nil {
				a.Abort()
				b.Abort()
			}
			return took, err
		}
		var quiet time.Duration
		for range 20 {
			took, err := once(func(string) {})
			require.NoError(t, err)
			quiet = max(quiet, took)
		}
		flood := startStranger(t, "flood")
		lasts := 5 * time.Second // of ten in two kernels
		if testing.Short() {
			lasts = 1500 * time.Millisecond
		}
		var slowest time.Duration
		var all []time.Duration
		up, full, aside := 0, 0, 0
		for begin := time.Now(); time.Since(begin) < lasts; {
			told, been := false, false
			took, err := once(func(name string) {
				flood.say(name)
				told = true
				if round := len(all) % 5; round == 4 {
					flood.hear() // it has filled the backlog
					been = true
				} else {
					for begin := time.Now(); time.Since(begin) < time.Duration(round)*100*time.Microsecond; {
						runtime.Gosched()
					}
				}
			})
			if told && !been {
				flood.hear()
			}
			if len(all) < gentleVisits {
				require.NoError(t, err)
			}
			switch {
			case err == nil:
				up++
			case errors.Is(err, unix.EAGAIN):
				full++
			default:
				aside++
				require.ErrorIs(t, err, errAside)
			}
			all, slowest = append(all, took), max(slowest, took)
			time.Sleep(5 * time.Millisecond)
		}
		said := flood.stop()
		slices.Sort(all)
		t.Logf("median %v, 95th percentile %v; %v at most when quiet, %v in the flood; %d channels, %d backlogs full, %d refused; connected, descriptors taken, bytes told: %s",
			all[len(all)/2], all[len(all)*95/100], quiet, slowest, up, full, aside, said)
		late, delay := 0, 50*time.Millisecond
		if raceEnabled {
			delay *= 5
		}
		for _, took := range all {
			if took > quiet+delay {
				late++
			}
		}
		// A machine with other work to do may hold up one or the other.
		assert.LessOrEqual(t, late, len(all)/20, "of %d are late", len(all))
		words := strings.Fields(said)
		require.Len(t, words, 3, said)
		connected, _ := strconv.Atoi(words[0])
		assert.Greater(t, connected, 20)
		assert.Equal(t, "0", words[2], "bytes that it was told")
		if takesRights.Load() {
			assert.NotEqual(t, "0", words[1], "descriptors that the kernel took")
			return
		}
		assert.Equal(t, "0", words[1], "descriptors that the kernel took")
		assert.Zero(t, aside)
		assert.Greater(t, 2*up, full)
	})
}

// beClient listens where an offer would, and prints the name and how many bytes it was told.
func beClient() {
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: "@sdp-" + strings.Repeat("0", 31) + "1", Net: "unix"})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("ready")
	told := make(chan int, 1)
	go func() {
		conn, err := ln.AcceptUnix()
		if err != nil {
			return
		}
		all, _ := io.ReadAll(conn)
		told <- len(all)
	}()
	<-untilStdinEnds()
	select {
	case n := <-told:
		fmt.Println(n)
	case <-time.After(time.Second):
		fmt.Println("nobody has come")
	}
	os.Exit(0)
}

// TestImpostor: another user who listens in a client's stead is told nothing.
func TestImpostor(t *testing.T) {
	onEachKernel(t, func(t *testing.T) {
		client := startStranger(t, "client")
		begin := time.Now()
		_, err := newPlace(t).Meet(rdma.Peer{}, rdma.Ticket{31: 1}, 1)
		assert.ErrorContains(t, err, "the peer's user has the uid 65533")
		assert.Less(t, time.Since(begin), joinTime)
		assert.Equal(t, "0", client.stop())
	})
}
