package sdp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// stack is package net or this one.
type stack struct {
	listen func(network, address string) (net.Listener, error)
	dial   func(network, address string) (net.Conn, error)
}

var stacks = [...]stack{{net.Listen, net.Dial}, {Listen, Dial}}

// connect returns a listener and both ends of a connection to it.
func (s stack) connect(t *testing.T, network, address string) (ln net.Listener, server, client net.Conn) {
	t.Helper()
	if network == "unix" {
		address = filepath.Join(t.TempDir(), "socket")
	}
	ln, err := s.listen(network, address)
	require.NoError(t, err)
	t.Cleanup(func() { ln.Close() })
	client, server, err = bothEnds(ln, func(address string) (net.Conn, error) { return s.dial(network, address) })
	require.NoError(t, err)
	t.Cleanup(func() { client.Close() })
	t.Cleanup(func() { server.Close() })
	return ln, server, client
}

// describe returns the text of err and the errors that it wraps, without the addresses of c, which
// has a LocalAddr and perhaps a RemoteAddr.
func describe(err error, local, remote net.Addr) string {
	if err == nil {
		return "ok"
	}
	s := err.Error()
	for ; err != nil; err = errors.Unwrap(err) {
		switch e := err.(type) {
		case *net.OpError:
			s += fmt.Sprintf(" | OpError %s %s", e.Op, e.Net)
		case *os.SyscallError:
			s += " | SyscallError " + e.Syscall
		default:
			s += fmt.Sprintf(" | %T", e)
		}
	}
	if remote != nil && remote.String() != "" {
		s = strings.ReplaceAll(s, remote.String(), "remote")
	}
	return strings.ReplaceAll(s, local.String(), "local")
}

// networksOfNet are those that package net knows, with an address to listen on.
var networksOfNet = map[string]string{"tcp": "127.0.0.1:0", "tcp4": "127.0.0.1:0", "tcp6": "[::1]:0", "unix": ""}

// forEachNetwork runs test for the networks that package net knows.
func forEachNetwork(t *testing.T, test func(t *testing.T, network, address string)) {
	for network, address := range networksOfNet {
		t.Run(network, func(t *testing.T) {
			if network == "tcp6" {
				ln, err := net.Listen(network, address)
				if err != nil {
					t.Skip("missing: IPv6: ", err)
				}
				ln.Close()
			}
			test(t, network, address)
		})
	}
}

// TestErrorsAsTCPs compares the errors of connections, after a deadline and after Close, with those
// of package net. They name the network as the program did.
func TestErrorsAsTCPs(t *testing.T) {
	type conn interface {
		net.Conn
		syscall.Conn
		CloseRead() error
		CloseWrite() error
		SetReadBuffer(int) error
		SetWriteBuffer(int) error
	}
	type tcpConn interface {
		SetLinger(int) error
		SetNoDelay(bool) error
		SetKeepAlive(bool) error
	}
	found := func(c conn, tcp bool) (errs []string) {
		raw, err := c.SyscallConn()
		require.NoError(t, err)
		read := func() error { _, err := c.Read(make([]byte, 1)); return err }
		write := func() error { _, err := c.Write(make([]byte, 1)); return err }
		calls := []func() error{
			func() error { return c.SetDeadline(time.Unix(1, 0)) },
			read, write, c.Close,
			read, write,
			func() error { return c.SetDeadline(time.Now()) },
			func() error { return c.SetReadDeadline(time.Now()) },
			func() error { return c.SetWriteDeadline(time.Now()) },
			func() error { return c.SetReadBuffer(4096) },
			func() error { return c.SetWriteBuffer(4096) },
			func() error { return raw.Control(func(uintptr) {}) },
			func() error { return raw.Read(func(uintptr) bool { return true }) },
			c.CloseRead, c.CloseWrite, c.Close,
		}
		if tcp {
			c := c.(tcpConn)
			calls = append(calls,
				func() error { return c.SetLinger(1) },
				func() error { return c.SetNoDelay(true) },
				func() error { return c.SetKeepAlive(true) },
			)
		}
		for _, call := range calls {
			errs = append(errs, describe(call(), c.LocalAddr(), c.RemoteAddr()))
		}
		return errs
	}
	forEachNetwork(t, func(t *testing.T, network, address string) {
		var server, client [len(stacks)][]string
		for i, stack := range stacks {
			_, s, c := stack.connect(t, network, address)
			server[i] = found(s.(conn), network != "unix")
			client[i] = found(c.(conn), network != "unix")
		}
		assert.Equal(t, server[0], server[1], "accepted")
		assert.Equal(t, client[0], client[1], "dialled")
	})
}

// endless is a source of zeros.
type endless struct{}

func (endless) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}

// returning is a source and a sink that returns n and err.
type returning struct {
	n   int
	err error
}

func (r returning) Read([]byte) (int, error)  { return r.n, r.err }
func (r returning) Write([]byte) (int, error) { return r.n, r.err }

// TestErrorsOfCopiesAsTCPs compares the errors of ReadFrom and WriteTo with those of package net,
// where it copies too: they wrap those of the Write or the Read, the source or the sink.
func TestErrorsOfCopiesAsTCPs(t *testing.T) {
	readFrom := func(r io.Reader) func(c promised) error {
		return func(c promised) error { _, err := c.ReadFrom(r); return err }
	}
	writeTo := func(w io.Writer) func(c promised) error {
		return func(c promised) error { _, err := c.WriteTo(w); return err }
	}
	deadline := func(c, _ promised) { c.SetDeadline(time.Now().Add(20 * time.Millisecond)) }
	closed := func(c, _ promised) { c.Close() }
	reset := func(_, peer promised) { peer.SetLinger(0); peer.Close() }
	full := func(_, peer promised) { peer.Write([]byte("some bytes")) }
	open := func(_, _ promised) {}
	for _, v := range []struct {
		name  string
		state func(c, peer promised)
		copy  func(c promised) error
	}{
		{"ReadFrom, deadline", deadline, readFrom(endless{})},
		{"ReadFrom, closed", closed, readFrom(endless{})},
		{"ReadFrom, reset", reset, readFrom(endless{})},
		{"ReadFrom, CloseWrite", func(c, _ promised) { c.CloseWrite() }, readFrom(endless{})},
		{"ReadFrom, source fails", open, readFrom(returning{err: errors.New("no more")})},
		{"ReadFrom, source is reset", open, readFrom(returning{err: syscall.ECONNRESET})},
		{"WriteTo, deadline", deadline, writeTo(io.Discard)},
		{"WriteTo, closed", closed, writeTo(io.Discard)},
		{"WriteTo, reset", reset, writeTo(io.Discard)},
		{"WriteTo, sink fails", full, writeTo(returning{err: errors.New("no room")})},
		{"WriteTo, sink is reset", full, writeTo(returning{err: syscall.EPIPE})},
		{"WriteTo, sink is short", full, writeTo(returning{n: 1})},
		{"WriteTo, sink counts wrongly", full, writeTo(returning{n: 1 << 30})},
		{"WriteTo, sink counts wrongly and fails", full, writeTo(returning{n: -1, err: errors.New("no room")})},
	} {
		var errs [len(stacks)]string
		for i, stack := range stacks {
			_, s, c := stack.connect(t, "tcp4", "127.0.0.1:0")
			v.state(c.(promised), s.(promised))
			errs[i] = describe(v.copy(c.(promised)), c.LocalAddr(), c.RemoteAddr())
		}
		assert.Equal(t, errs[0], errs[1], v.name)
	}
}

// TestErrorsOfListenersAsTCPs is TestErrorsAsTCPs for listeners.
func TestErrorsOfListenersAsTCPs(t *testing.T) {
	forEachNetwork(t, func(t *testing.T, network, address string) {
		var errs [len(stacks)][]string
		for i, stack := range stacks {
			if network == "unix" {
				address = filepath.Join(t.TempDir(), "socket")
			}
			ln, err := stack.listen(network, address)
			require.NoError(t, err)
			l := ln.(listening)
			accept := func() error { _, err := l.Accept(); return err }
			for _, call := range []func() error{
				func() error { return l.SetDeadline(time.Unix(1, 0)) },
				accept, l.Close,
				accept,
				func() error { return l.SetDeadline(time.Now()) },
				func() error { _, err := l.File(); return err },
				l.Close,
			} {
				errs[i] = append(errs[i], describe(call(), l.Addr(), nil))
			}
		}
		assert.Equal(t, errs[0], errs[1])
	})
}

// TestErrorsOfAListenerAreOpErrors, with the name of the network, also if the listener runs handshakes. Only that
// of SetDeadline after Close is package net's.
func TestErrorsOfAListenerAreOpErrors(t *testing.T) {
	for _, network := range []string{"tcp", "sdp"} {
		ln, err := Listen(network, "127.0.0.1:0")
		require.NoError(t, err)
		l := ln.(listening)
		raw, err := l.SyscallConn()
		require.NoError(t, err)
		accept := func() error { _, err := l.Accept(); return err }
		file := func() error { _, err := l.File(); return err }
		control := func() error { return raw.Control(func(uintptr) {}) }
		require.NoError(t, l.SetDeadline(time.Unix(1, 0)))
		late := accept()
		assert.ErrorIs(t, late, os.ErrDeadlineExceeded)
		require.NoError(t, l.Close())
		for _, err := range []error{late, accept(), file(), control(), l.Close()} {
			var op *net.OpError
			require.IsType(t, op, err)
			assert.Equal(t, network, err.(*net.OpError).Net)
		}
		err = l.SetDeadline(time.Now())
		assert.ErrorIs(t, err, net.ErrClosed)
		assert.NotErrorAs(t, err, new(*net.OpError))
	}
}

// TestErrorsNameTheNetwork: those of a connection on network sdp do so as Dial's, and those of a
// connection or a listener that the program has made name the network of its address.
func TestErrorsNameTheNetwork(t *testing.T) {
	named := func(err error) string {
		var op *net.OpError
		require.ErrorAs(t, err, &op)
		return op.Net
	}
	_, s, c := stacks[1].connect(t, "sdp4", "127.0.0.1:0")
	for _, c := range []net.Conn{s, c} {
		require.NoError(t, c.Close())
		assert.Equal(t, "sdp4", named(c.Close()))
	}

	client, server := rawPair(t)
	served := make(chan net.Conn, 1)
	go func() {
		up, err := Server(context.Background(), server, nil)
		assert.NoError(t, err)
		served <- up
	}()
	up, err := Client(context.Background(), client, nil)
	require.NoError(t, err)
	for _, c := range []net.Conn{up, <-served} {
		require.NoError(t, c.Close())
		assert.Equal(t, "tcp", named(c.Close()))
	}

	inner, err := net.Listen("unix", filepath.Join(t.TempDir(), "socket"))
	require.NoError(t, err)
	ln, err := NewListener(inner, nil)
	require.NoError(t, err)
	require.NoError(t, ln.Close())
	assert.Equal(t, "unix", named(ln.Close()))
}
