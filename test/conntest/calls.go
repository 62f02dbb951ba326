package conntest

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Soon ends a test that hangs.
const Soon = time.Minute

// Await returns what the call returns, within the time.
func Await(t *testing.T, done <-chan error, within time.Duration) error {
	t.Helper()
	select {
	case err := <-done:
		return err
	case <-time.After(within):
		require.Fail(t, "the call does not return")
		return nil
	}
}

// Accept1 accepts a connection beside the test.
func Accept1(ln net.Listener) <-chan net.Conn {
	accepted := make(chan net.Conn, 1)
	go func() {
		c, _ := ln.Accept()
		accepted <- c
	}()
	return accepted
}

// BothEnds dials while the listener accepts, and returns both ends. If it fails, the listener accepts until it is
// closed.
func BothEnds(ln net.Listener, dial func(address string) (net.Conn, error)) (client, server net.Conn, err error) {
	accepted := Accept1(ln)
	if client, err = dial(ln.Addr().String()); err != nil {
		return nil, nil, err
	}
	if server = <-accepted; server == nil {
		client.Close()
		return nil, nil, errors.New("nothing was accepted")
	}
	return client, server, nil
}

// CheckError checks that err is package net's way to say target.
func CheckError(t *testing.T, err error, op string, targets ...error) {
	t.Helper()
	var operation *net.OpError
	if !assert.ErrorAs(t, err, &operation) {
		return
	}
	assert.Equal(t, op, operation.Op)
	if op != "set" { // TestErrorsAsTCPs looks at those
		assert.IsType(t, &net.TCPAddr{}, operation.Source)
	}
	assert.IsType(t, &net.TCPAddr{}, operation.Addr)
	if (op == "read" || op == "write") && (errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET)) {
		var call *os.SyscallError
		if assert.ErrorAs(t, err, &call, "as package net's") {
			assert.Equal(t, op, call.Syscall)
		}
	}
	is, timeout := false, false
	for _, target := range targets {
		is = is || errors.Is(err, target)
		timeout = timeout || target == os.ErrDeadlineExceeded
	}
	assert.True(t, is, "%v is none of %v", err, targets)
	assert.Equal(t, timeout, operation.Timeout())
}

// CheckDeath checks that a Read has ended because the peer's process has. Over iwarp that is a
// reset if a message or a transfer was cut, or if something had arrived that the process had not
// taken from its kernel, and otherwise an end.
func CheckDeath(t *testing.T, err error) {
	t.Helper()
	if err != io.EOF {
		CheckError(t, err, "read", syscall.ECONNRESET)
	}
}

// Random returns n bytes, the same ones each time.
func Random(n int) []byte {
	b := make([]byte, n)
	rand.NewChaCha8([32]byte{1}).Read(b)
	return b
}

// SameBytes sends b from one end to the other and compares.
func SameBytes(t *testing.T, from, to net.Conn, b []byte) {
	t.Helper()
	var wg sync.WaitGroup
	wg.Go(func() {
		_, err := from.Write(b)
		assert.NoError(t, err)
	})
	got := make([]byte, len(b))
	_, err := io.ReadFull(to, got)
	wg.Wait()
	require.NoError(t, err)
	require.True(t, bytes.Equal(b, got))
}

// RawPair returns the ends of a TCP connection.
func RawPair(t testing.TB) (client, server net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	client, err = net.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	server, err = l.Accept()
	require.NoError(t, err)
	return client, server
}

// WaitsIn reports whether a goroutine is in the function, in a call of what.
func WaitsIn(function, what string) bool {
	stacks := make([]byte, 1<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	for _, stack := range bytes.Split(stacks, []byte("\n\n")) {
		if bytes.Contains(stack, []byte(what)) && bytes.Contains(stack, []byte(function)) {
			return true
		}
	}
	return false
}

// CheckEcho closes c after it has had a line echoed.
func CheckEcho(t *testing.T, c net.Conn) {
	t.Helper()
	defer c.Close()
	c.SetDeadline(time.Now().Add(Soon))
	_, err := io.WriteString(c, "hello\n")
	assert.NoError(t, err)
	b := make([]byte, 6)
	_, err = io.ReadFull(c, b)
	assert.NoError(t, err)
	assert.Equal(t, "hello\n", string(b))
}

// Log is the output of a logger that tests can read.
type Log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *Log) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

// Lines returns what was logged.
func (l *Log) Lines() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Split(strings.TrimSpace(l.text.String()), "\n")
}
