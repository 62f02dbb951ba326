package stream

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// The matrix: a child process exchanges messages with the test, and is stopped or killed at a step of moving or coming
// home. Every message is a number of eight bytes and so many bytes of a pattern, so that the end that is left knows what it
// must have got.

// steps are those of an end that the script below brings it to.
var steps = []string{
	"met", "attached", "to join", "to consent", "consented", "to send", "to publish", "published", "moved", "entered",
	"leaving", "to recall", "recalled", "heard the recall", "sent a rest", "to be home", "to unmap",
}

// stepped is set when this process has come to its step.
var stepped atomic.Bool

// said is how many messages of this process have been written.
var said atomic.Int64

const (
	scriptRounds  = 60 // exchanges, in which the connection moves
	scriptMessage = 100
)

func init() {
	if addr := os.Getenv("STREAM_CHILD"); addr != "" {
		onStep = func(name string) {
			if name != os.Getenv("STREAM_STEP") || stepped.Swap(true) {
				return
			}
			fmt.Println("step", said.Load())
			if os.Getenv("STREAM_DO") == "kill" {
				syscall.Kill(os.Getpid(), syscall.SIGKILL)
			}
			syscall.Kill(os.Getpid(), syscall.SIGSTOP)
		}
		var c net.Conn
		var err error
		dials := os.Getenv("STREAM_DIALS") == "true"
		if dials {
			c, err = net.Dial("tcp", addr)
		} else {
			var f net.Listener
			if f, err = net.FileListener(os.NewFile(3, "")); err == nil {
				c, err = f.Accept()
			}
		}
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		s := New(c.(*net.TCPConn))
		s.Move(dials, &Policy{})
		fmt.Println(script(s, dials))
		os.Exit(0)
	}
}

// script is what both ends do: exchange messages until the connection has moved, come home with some of them unread, and
// read the rest. It returns how many bytes of the peer it has read.
func script(c *Conn, first bool) (read int, err error) {
	msg := make([]byte, scriptMessage)
	say := func(n int) error {
		for i := range msg {
			msg[i] = byte(n + i)
		}
		binary.BigEndian.PutUint64(msg, uint64(n))
		_, err := c.Write(msg)
		if err == nil {
			said.Add(1)
		}
		return err
	}
	buf := make([]byte, scriptMessage)
	hear := func(n int) error {
		k, err := io.ReadFull(c, buf)
		read += k
		if err != nil {
			return err
		}
		if got := int(binary.BigEndian.Uint64(buf)); got != n {
			return fmt.Errorf("message %d instead of %d", got, n)
		}
		for i := 8; i < len(buf); i++ {
			if buf[i] != byte(n+i) {
				return fmt.Errorf("byte %d of message %d is %d", i, n, buf[i])
			}
		}
		return nil
	}
	for n := range scriptRounds {
		if first {
			if err = say(n); err == nil {
				err = hear(n)
			}
		} else if err = hear(n); err == nil {
			err = say(n)
		}
		if err != nil {
			return read, err
		}
	}
	for n := range 5 {
		if err := say(scriptRounds + n); err != nil {
			return read, err
		}
	}
	c.Leave()
	for n := range 5 {
		if err := hear(scriptRounds + n); err != nil {
			return read, err
		}
	}
	for n := range 5 {
		if err := say(scriptRounds + 5 + n); err != nil {
			return read, err
		}
	}
	if err := c.CloseWrite(); err != nil {
		return read, err
	}
	for n := range 5 {
		if err := hear(scriptRounds + 5 + n); err != nil {
			return read, err
		}
	}
	if k, err := c.Read(buf); k != 0 {
		return read, fmt.Errorf("%d bytes after the last message", k)
	} else if err != io.EOF {
		return read, err
	}
	return read, nil
}

func TestMatrix(t *testing.T) {
	var mu sync.Mutex
	reached := map[string]bool{}
	t.Run("step", func(t *testing.T) { matrix(t, func(step string) { mu.Lock(); reached[step] = true; mu.Unlock() }) })
	for _, s := range steps {
		assert.True(t, reached[s], "no end has come to the step %q", s)
	}
}

func matrix(t *testing.T, reached func(step string)) {
	for _, dials := range []bool{true, false} {
		for _, at := range steps {
			for _, do := range []string{"stop", "kill"} {
				t.Run(fmt.Sprintf("child dials %t, %s at %s", dials, do, at), func(t *testing.T) {
					t.Parallel()
					if crash(t, dials, at, do) {
						reached(at)
					}
				})
			}
		}
	}
}

// crash runs the script against a child that is stopped or killed at a step. It reports whether the child came there.
func crash(t *testing.T, dials bool, at, do string) (reached bool) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	file, err := ln.(*net.TCPListener).File()
	require.NoError(t, err)
	defer file.Close()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "STREAM_CHILD="+ln.Addr().String(), "STREAM_STEP="+at, "STREAM_DO="+do, "STREAM_DIALS="+strconv.FormatBool(dials))
	cmd.ExtraFiles = []*os.File{file}
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	defer cmd.Process.Kill()

	var c net.Conn
	if dials {
		c, err = ln.Accept()
	} else {
		c, err = net.Dial("tcp", ln.Addr().String())
	}
	require.NoError(t, err)
	s := New(c.(*net.TCPConn))
	defer s.Close()
	s.Move(!dials, &Policy{})
	var wg sync.WaitGroup
	var read int
	var failed error
	wg.Go(func() { read, failed = script(s, !dials) })

	lines := bufio.NewScanner(out)
	var last string
	var heard int // messages of the child's that were written before
	for lines.Scan() {
		if n, err := fmt.Sscanf(lines.Text(), "step %d", &heard); n != 1 || err != nil {
			last = lines.Text() // but it may come to the step while it ends
			continue
		}
		reached = true
		if do == "stop" {
			var status syscall.WaitStatus
			for !status.Stopped() {
				_, err := syscall.Wait4(cmd.Process.Pid, &status, syscall.WUNTRACED, nil)
				require.True(t, err == nil || errors.Is(err, unix.EINTR), "%v", err)
			}
			require.NoError(t, cmd.Process.Signal(syscall.SIGCONT))
		}
	}
	wg.Wait()
	cmd.Wait()
	whole := (scriptRounds + 10) * scriptMessage
	if do == "kill" && reached {
		if failed != nil {
			assert.NotContains(t, failed.Error(), "message")
		}
		if !errors.Is(failed, unix.ECONNRESET) && !errors.Is(failed, unix.EPIPE) { // by which TCP loses bytes, too
			assert.GreaterOrEqual(t, read, heard*scriptMessage, "%v", failed)
		}
		return reached
	}
	assert.NoError(t, failed)
	assert.Equal(t, whole, read)
	assert.Equal(t, fmt.Sprint(whole, " <nil>"), last)
	return reached
}
