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

// role is the environment variable that makes the test's program a child: what it is to
// do, as words.
const role = "SDP_COST_ROLE"

func TestMain(m *testing.M) {
	if words := strings.Fields(os.Getenv(role)); len(words) > 0 {
		if err := be(words[0], words[1:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

// be is a child: "serve DEVICE" echoes on two ports, of which one is plain TCP, and says
// where; "ask DEVICE ADDRESS MICROSECONDS SECONDS" asks once in so long, and says what its
// round trips took. At the end of its input, or of its time, each says what it has used.
func be(what string, words []string) error {
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

// ask makes round trips of 64 bytes, one in each period of every. A thread waits for the
// next: Go's timers are too coarse for that.
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
			next = now // what was missed is not made up for
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

// child is a process that the test has started.
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

// asked is what one that asks has seen: how often, and how long its round trips took.
type asked struct {
	requests int
	p50, p99 time.Duration
	used     time.Duration
}

func (c *child) asked() (a asked) {
	c.t.Helper()
	d := c.durations(3)
	a.requests, a.p50, a.p99 = int(d[0]), d[1], d[2]
	a.used = c.durations(1)[0]
	return a
}

// end has a server end, and says what processor time it has used.
func (c *child) end() time.Duration {
	c.t.Helper()
	c.in.Close()
	return c.durations(1)[0]
}
