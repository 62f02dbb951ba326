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
	switch role, argument, _ := strings.Cut(os.Getenv(strangerVariable), " "); role {
	case "flood":
		beFlood(argument)
	case "impostor":
		beImpostor(argument)
	default:
		goleak.VerifyTestMain(m)
	}
}

// strangerUID is nobody's on most systems.
const strangerUID = 65533

// startStranger starts a process of another user, and returns the first line that it
// prints. stop ends it, and returns the rest.
func startStranger(t *testing.T, role string) (first string, stop func() string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root, to be another user")
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
		t.Skipf("another user may not execute this test: %v", err)
	}
	require.NoError(t, err)
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	lines := bufio.NewReader(out)
	first, err = lines.ReadString('\n')
	require.NoError(t, err)
	return strings.TrimSpace(first), func() string {
		stdin.Close()
		rest, _ := io.ReadAll(lines)
		return strings.TrimSpace(string(rest))
	}
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

// beFlood connects to a socket without end, and sends descriptors whose last close
// blocks. It prints how often it connected, how often the kernel took a descriptor, and
// how many bytes it was told.
func beFlood(socket string) {
	fail := func(err error) {
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
	}
	over := untilStdinEnds()
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
	says := (&opening{}).append(nil)
	for {
		select {
		case <-over:
			fmt.Println(connected, taken, told)
			os.Exit(0)
		default:
		}
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
		fail(err)
		if err := unix.Connect(fd, &unix.SockaddrUnix{Name: "@" + socket}); err != nil {
			unix.Close(fd) // the place is closed
			time.Sleep(time.Millisecond)
			continue
		}
		connected++
		if len(ready) > 0 {
			f := ready[len(ready)-1]
			if unix.Sendmsg(fd, says, unix.UnixRights(f), nil, unix.MSG_NOSIGNAL) == nil {
				taken++
				unix.Close(f)
				ready = ready[:len(ready)-1]
			}
		}
		unix.Sendmsg(fd, says, nil, nil, unix.MSG_NOSIGNAL)
		if open = append(open, fd); len(open) > 200 {
			n, _, _ := unix.Recvfrom(open[0], make([]byte, 100), unix.MSG_DONTWAIT)
			told += max(n, 0)
			unix.Close(open[0])
			open = open[1:]
		}
	}
}

// TestFlood: another user who connects without end, and sends descriptors whose closing
// blocks, delays neither channels of our own user nor the end of the place, and is told
// nothing.
func TestFlood(t *testing.T) {
	onEachKernel(t, func(t *testing.T) {
		p := newPlace(t)
		old := takesRights.Load()
		// once opens a channel, and returns how long that took.
		once := func() (time.Duration, error) {
			ctx, cancel := context.WithTimeout(t.Context(), joinTime)
			defer cancel()
			begin := time.Now()
			made, err := p.Invite(rdma.Peer{}, func(b []byte) ([]byte, int, error) { return b, 7, nil })
			if err != nil {
				return time.Since(begin), err
			}
			defer made.Withdraw()
			q, err := device{}.Dial(ctx, made.Address(), stepConfig, []byte("x"), settle("x"))
			if err != nil {
				return time.Since(begin), err
			}
			defer q.Abort()
			_, err = made.Take(ctx)
			return time.Since(begin), err
		}
		var quiet time.Duration
		for range 20 {
			took, err := once()
			require.NoError(t, err)
			quiet = max(quiet, took)
		}
		_, stop := startStranger(t, "flood "+p.socket)
		lasts := 5 * time.Second // of ten in two kernels
		if testing.Short() {
			lasts = 1500 * time.Millisecond
		}
		var slowest time.Duration
		var all []time.Duration
		up, plain, waited := 0, 0, 0
		for begin := time.Now(); time.Since(begin) < lasts; {
			took, err := once()
			switch {
			case old && errors.Is(err, os.ErrDeadlineExceeded):
				waited++ // it was to be accepted when the last close blocked
			case err != nil:
				plain++
				require.True(t, old && errors.Is(err, errAside) || errors.Is(err, unix.EAGAIN), "%v", err)
			default:
				up++
			}
			all, slowest = append(all, took), max(slowest, took)
			time.Sleep(5 * time.Millisecond)
		}
		begin := time.Now()
		require.NoError(t, p.Close())
		closing := time.Since(begin)
		said := stop()
		slices.Sort(all)
		t.Logf("median %v, 95th percentile %v; %v at most when quiet, %v in the flood; %d channels, %d refused; Close %v; connected, descriptors taken, bytes told: %s; %d closes blocked",
			all[len(all)/2], all[len(all)*95/100], quiet, slowest, up, plain, closing, said, aside.Load())
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
		assert.LessOrEqual(t, late, len(all)/20, "of %d dials are late", len(all))
		assert.LessOrEqual(t, waited, 1)
		assert.Less(t, closing, delay)
		words := strings.Fields(said)
		require.Len(t, words, 3, said)
		connected, _ := strconv.Atoi(words[0])
		assert.Greater(t, connected, 20)
		assert.Equal(t, "0", words[2], "bytes that it was told")
		if !old {
			assert.Equal(t, "0", words[1], "descriptors that the kernel took")
			assert.Greater(t, up, 10*plain)
		} else {
			assert.NotEqual(t, "0", words[1])
		}
	})
}

// beImpostor listens in a place's stead and says what a place might, with a descriptor. It
// prints how many bytes it was told.
func beImpostor(socket string) {
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: "@" + socket, Net: "unix"})
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
		c := challenge{nonce: newNonce()}
		conn.WriteMsgUnix(c.append(nil), unix.UnixRights(0), nil)
		conn.Write(c.append(nil))
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

// TestImpostor: another user who listens in a place's stead is told not even which
// invitation it is about.
func TestImpostor(t *testing.T) {
	onEachKernel(t, func(t *testing.T) {
		socket := fmt.Sprintf("sdp-impostor-%d-%s", os.Getpid(), strings.ReplaceAll(t.Name(), "/", "-"))
		socket = socket[:min(len(socket), 64)]
		first, stop := startStranger(t, "impostor "+socket)
		require.Equal(t, "ready", first)
		begin := time.Now()
		_, err := device{}.Dial(t.Context(), rdma.Address{Socket: socket}, stepConfig, []byte("private"), settle(""))
		assert.ErrorContains(t, err, "the peer's user has the uid 65533")
		assert.Less(t, time.Since(begin), joinTime)
		assert.Equal(t, "0", stop())
	})
}
