//go:build !race

package cost

import (
	"bufio"
	"context"
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

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/gosdp/gosdp/sdp"
)

// role is the environment variable that makes the test binary a child process. Its
// value is the child's command and arguments.
const role = "SDP_COST_ROLE"

func TestMain(m *testing.M) {
	if words := strings.Fields(os.Getenv(role)); len(words) > 0 {
		if err := runChild(words[0], words[1:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

// runChild runs a child process. "serve DEVICE" echoes on two ports, the first of which is
// plain TCP, and prints their addresses. "ask DEVICE ADDRESS MICROSECONDS SECONDS" makes a
// round trip per period, and prints their number, median and 99th percentile. Finally each
// prints the processor time that it used.
func runChild(what string, words []string) error {
	before := used()
	switch what {
	case "serve":
		plain, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		ln, err := listen(words[0])
		if err != nil {
			return err
		}
		go echo(plain)
		go echo(ln)
		fmt.Println(plain.Addr(), ln.Addr())
		before = used()
		io.Copy(io.Discard, os.Stdin)
	case "ask":
		every, err := strconv.Atoi(words[2])
		if err != nil {
			return err
		}
		seconds, err := strconv.ParseFloat(words[3], 64)
		if err != nil {
			return err
		}
		c, err := dial(words[0], words[1])
		if err != nil {
			return err
		}
		defer c.Close()
		before = used()
		took, err := ask(c, time.Duration(every)*time.Microsecond, time.Duration(seconds*float64(time.Second)))
		if err != nil {
			return err
		}
		slices.Sort(took)
		fmt.Println(len(took), took[len(took)/2].Nanoseconds(), took[len(took)*99/100].Nanoseconds())
	}
	fmt.Println((used() - before).Nanoseconds())
	return nil
}

func config(device string) *sdp.Config { return &sdp.Config{Devices: []string{device}} }

func listen(device string) (net.Listener, error) {
	if device == "tcp" {
		return net.Listen("tcp", "127.0.0.1:0")
	}
	lc := sdp.ListenConfig{Config: config(device)}
	return lc.Listen(context.Background(), "tcp", "127.0.0.1:0")
}

func dial(device, address string) (net.Conn, error) {
	if device == "tcp" {
		return net.Dial("tcp", address)
	}
	c, err := (&sdp.Dialer{Config: config(device)}).Dial("tcp", address)
	if err == nil {
		if s, ok := c.(*sdp.Conn); !ok || s.Device() != device {
			return nil, fmt.Errorf("the connection is a %T", c)
		}
	}
	return c, err
}

func echo(ln net.Listener) {
	for {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			b := make([]byte, 64)
			for {
				if _, err := io.ReadFull(c, b); err != nil {
					return
				}
				if _, err := c.Write(b); err != nil {
					return
				}
			}
		}()
	}
}

// ask makes a round trip of 64 bytes in each period. It blocks a thread between them,
// because Go's timers are not precise enough.
func ask(c net.Conn, every, long time.Duration) (took []time.Duration, err error) {
	b := make([]byte, 64)
	begin := time.Now()
	for next := every; ; next += every {
		asked := time.Since(begin)
		if asked > long {
			return took, nil
		}
		if _, err := c.Write(b); err != nil {
			return nil, err
		}
		if _, err := io.ReadFull(c, b); err != nil {
			return nil, err
		}
		now := time.Since(begin)
		took = append(took, now-asked)
		if next < now {
			next = now // skip the periods that were missed
		}
		left := unix.NsecToTimespec((next - now).Nanoseconds())
		for unix.Nanosleep(&left, &left) == unix.EINTR {
		}
	}
}

func used() time.Duration {
	var u syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// child is a child process.
type child struct {
	t   *testing.T
	cmd *exec.Cmd
	in  io.Closer
	out *bufio.Reader
}

func start(t *testing.T, environment []string, words ...string) *child {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^$")
	cmd.Env = append(append(os.Environ(), environment...), role+"="+strings.Join(words, " "))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	c := &child{t, cmd, in, bufio.NewReader(out)}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	return c
}

// words reads a line of n words.
func (c *child) words(n int) []string {
	c.t.Helper()
	line, err := c.out.ReadString('\n')
	require.NoError(c.t, err)
	words := strings.Fields(line)
	require.Len(c.t, words, n, line)
	return words
}

// durations reads a line of n numbers of nanoseconds.
func (c *child) durations(n int) (all []time.Duration) {
	c.t.Helper()
	for _, w := range c.words(n) {
		d, err := strconv.ParseInt(w, 10, 64)
		require.NoError(c.t, err)
		all = append(all, time.Duration(d))
	}
	return all
}

// result is what an "ask" child reports.
type result struct {
	requests int
	p50, p99 time.Duration
	used     time.Duration
}

func (c *child) result() (a result) {
	c.t.Helper()
	d := c.durations(3)
	a.requests, a.p50, a.p99 = int(d[0]), d[1], d[2]
	a.used = c.durations(1)[0]
	return a
}

// end makes a "serve" child end and returns the processor time that it used.
func (c *child) end() time.Duration {
	c.t.Helper()
	c.in.Close()
	return c.durations(1)[0]
}
