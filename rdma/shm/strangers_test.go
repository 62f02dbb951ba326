//go:build linux

package shm

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
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
	linkTime, tryTime = time.Hour, time.Hour // no test depends on how fast it is
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
// descriptors whose closing blocks, does not keep channels of our own user from being opened,
// and is told nothing. It may come before the server, and fill the backlog: then there is no
// channel, nor when a kernel without SO_PASSRIGHTS has taken many of the descriptors.
func TestFlood(t *testing.T) {
	onEachKernel(t, func(t *testing.T) {
		p := newPlace(t)
		flood := startStranger(t, "flood")
		rounds := 100
		if testing.Short() {
			rounds = 20
		}
		up, full, aside := 0, 0, 0
		for round := range rounds {
			made, err := device{}.Offer("", stepConfig)
			told, been := false, false
			if err == nil {
				_, name := halves(made.Ticket())
				flood.say(name)
				told = true
				if round%5 == 4 {
					flood.hear() // it has filled the backlog
					been = true
				}
				var a, b *QueuePair
				if a, b, err = open(t.Context(), p, made.(*offer), rdma.Peer{}); err == nil {
					a.Abort()
					b.Abort()
				}
			}
			if told && !been {
				flood.hear()
			}
			if round < gentleVisits {
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
		}
		said := flood.stop()
		t.Logf("%d channels, %d backlogs full, %d refused; connected, descriptors taken, bytes told: %s", up, full, aside, said)
		words := strings.Fields(said)
		require.Len(t, words, 3, said)
		assert.NotEqual(t, "0", words[0], "connections")
		assert.Equal(t, "0", words[2], "bytes that it was told")
		if takesRights.Load() {
			assert.NotEqual(t, "0", words[1], "descriptors that the kernel took")
			return
		}
		assert.Equal(t, "0", words[1], "descriptors that the kernel took")
		assert.Zero(t, aside)
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
	case <-time.After(time.Minute):
		fmt.Println("nobody has come")
	}
	os.Exit(0)
}

// TestImpostor: another user who listens in a client's stead is told nothing.
func TestImpostor(t *testing.T) {
	onEachKernel(t, func(t *testing.T) {
		client := startStranger(t, "client")
		_, err := newPlace(t).Meet(rdma.Peer{}, rdma.Ticket{31: 1}, 1)
		assert.ErrorContains(t, err, "peer has uid 65533")
		assert.Equal(t, "0", client.stop())
	})
}
