package parity

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/gosdp/gosdp/sdp"
)

// pair returns both ends of a connection: the one that dialled and the one that accepted.
func (r *run) pair() (c, s conn) {
	ln, err := r.Listen()
	check(err)
	return r.connect(ln)
}

// connect returns both ends of a connection through ln.
func (r *run) connect(ln net.Listener) (c, s conn) {
	accepted := make(chan conn, 1)
	go func() { accepted <- r.accept(ln) }()
	c, err := r.Dial(ln.Addr().String())
	check(err)
	s = <-accepted
	r.move(c, s)
	return c, s
}

// move makes a connection move to shared memory, if connections do that at once.
func (r *run) move(c, s conn) {
	if r.name != "shm" || os.Getenv(moveVariable) != "at-once" {
		return
	}
	moved := func(c conn) bool { return c.(*sdp.Conn).Device() == "shm" }
	for i := 0; !moved(c) || !moved(s); i++ {
		if i == 1000 {
			panic("the connection does not move: " + c.(*sdp.Conn).Stats().OnTCP)
		}
		for _, way := range [][2]conn{{c, s}, {s, c}} {
			_, err := way[0].Write([]byte{0})
			check(err)
			_, err = way[1].Read(make([]byte, 1))
			check(err)
		}
	}
}

// accept returns the listener's next connection.
func (r *run) accept(ln net.Listener) conn {
	s, err := ln.Accept()
	check(err)
	check(r.carries(s))
	return s.(conn)
}

// describe describes an error without addresses.
func describe(err error) string {
	kind := ""
	switch {
	case err == nil:
		return "nil"
	case err == io.EOF:
		return "EOF"
	case err == errHangs:
		return err.Error()
	case errors.Is(err, context.Canceled):
		kind = "context.Canceled"
	case errors.Is(err, context.DeadlineExceeded):
		kind = "context.DeadlineExceeded"
	case errors.Is(err, net.ErrClosed):
		kind = "net.ErrClosed"
	case errors.Is(err, os.ErrDeadlineExceeded):
		kind = "os.ErrDeadlineExceeded"
	case errors.Is(err, syscall.ECONNRESET):
		kind = "ECONNRESET"
	case errors.Is(err, syscall.EPIPE):
		kind = "EPIPE"
	case errors.Is(err, syscall.ECONNREFUSED):
		kind = "ECONNREFUSED"
	case errors.Is(err, syscall.ETIMEDOUT):
		kind = "ETIMEDOUT"
	case errors.Is(err, syscall.EFAULT):
		kind = "EFAULT"
	default:
		kind = err.Error()
	}
	var op *net.OpError
	if errors.As(err, &op) {
		kind = op.Op + " " + kind
	}
	return kind
}

// timed calls f and describes its error, or says that f hangs.
func timed(f func() error) string { return describe(bounded(f)) }

// patience is how long a call may take that does not depend on the peer. It is far longer than
// any call takes on a busy machine.
const patience = 30 * time.Second

// bounded calls f and returns its error, or errHangs if f does not return in time.
func bounded(f func() error) error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	select {
	case err := <-done:
		return err
	case <-time.After(patience):
		return errHangs
	}
}

// pattern fills b with the bytes of the stream that begin at offset.
func pattern(b []byte, offset int) []byte {
	for i := range b {
		n := offset + i
		b[i] = byte(n ^ n>>8*7 ^ n>>16*31)
	}
	return b
}

// bytesOf returns the first n bytes of the stream.
func bytesOf(n int) []byte { return pattern(make([]byte, n), 0) }

var errWrongByte = errors.New("a wrong byte")

// readTo reads the stream from offset got to offset want, or to its end, and checks every
// byte. It returns the offset reached.
func readTo(c io.Reader, got, want int) (int, error) {
	b, expected := make([]byte, 64<<10), make([]byte, 64<<10)
	for got < want {
		n, err := c.Read(b[:min(len(b), want-got)])
		pattern(expected[:n], got)
		for i := range n {
			if b[i] != expected[i] {
				return got + i, fmt.Errorf("%w at %d", errWrongByte, got+i)
			}
		}
		got += n
		if err != nil {
			return got, err
		}
	}
	return got, nil
}

// endless is a larger offset than that of any stream.
const endless = math.MaxInt

// readAll reads the stream to its end and describes the result.
func readAll(c conn, want int) string {
	var got int
	err := bounded(func() (err error) {
		got, err = readTo(c, 0, endless)
		return err
	})
	if err == errHangs {
		return "no end"
	}
	return fmt.Sprintf("%s, then %s", amount(got, want), describe(err))
}

// amount describes how many of the sent bytes arrived.
func amount(got, want int) string {
	if got == want {
		return "every byte"
	}
	if got > want {
		return "too many bytes"
	}
	return "too few bytes"
}

// fill writes the stream until a Write makes no progress, and returns the number of bytes.
func fill(c conn) (taken int, err error) {
	b := make([]byte, 4<<10)
	for n := 1; err == nil && n > 0; taken += n {
		check(c.SetWriteDeadline(time.Now().Add(400 * time.Millisecond)))
		n, err = c.Write(pattern(b, taken))
		if errors.Is(err, os.ErrDeadlineExceeded) {
			err = nil
		}
	}
	check(c.SetWriteDeadline(time.Time{}))
	return taken, err
}

// blocking is the length of a Write that blocks until the peer reads. No connection buffers as
// much.
const blocking = 32 << 20

// blocked calls f on a new goroutine and waits until that is blocked in it.
func blocked(f func() error) (result <-chan error) {
	done := make(chan error, 1)
	go inBlocked(f, done)
	stacks := make([]byte, 1<<20)
	if !eventually(func() bool {
		for stack := range strings.SplitSeq(string(stacks[:runtime.Stack(stacks, true)]), "\n\n") {
			state, _, _ := strings.Cut(stack, "\n")
			running := strings.Contains(state, "[running") || strings.Contains(state, "[runnable") || strings.Contains(state, "[syscall")
			if strings.Contains(stack, "parity.inBlocked(") && !running {
				return true
			}
		}
		return len(done) > 0
	}) {
		panic("the call does not block")
	}
	return done
}

// inBlocked is the function by which blocked finds the goroutine.
//
//go:noinline
func inBlocked(f func() error, done chan<- error) { done <- f() }

// writeUntilError writes single bytes until a Write fails.
func writeUntilError(c conn) error {
	var err error
	eventually(func() bool {
		_, err = c.Write([]byte{0})
		return err != nil
	})
	return err
}
