package sdp

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"reflect"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// promised are the methods that programs find on what package net gives them.
type promised interface {
	net.Conn
	io.ReaderFrom
	io.WriterTo
	syscall.Conn
	CloseRead() error
	CloseWrite() error
	MultipathTCP() (bool, error)
	SetKeepAlive(bool) error
	SetKeepAliveConfig(net.KeepAliveConfig) error
	SetKeepAlivePeriod(time.Duration) error
	SetLinger(int) error
	SetNoDelay(bool) error
	SetReadBuffer(int) error
	SetWriteBuffer(int) error
}

var (
	_ promised = (*Conn)(nil)
	_ promised = (*net.TCPConn)(nil)
)

// missing are methods of package net's types that could only fail here: a program finds that
// when it is compiled, or when it asks for them.
var missing = map[string]bool{
	"Listener.AcceptTCP": true, // a connection may be SDP's
}

// TestMethodSets shows that no other method of package net's types is missing.
func TestMethodSets(t *testing.T) {
	for _, v := range []struct{ theirs, ours any }{
		{(*net.TCPConn)(nil), (*Conn)(nil)},
		{(*net.TCPListener)(nil), (*Listener)(nil)},
	} {
		theirs, ours := reflect.TypeOf(v.theirs), reflect.TypeOf(v.ours)
		for i := range theirs.NumMethod() {
			m := theirs.Method(i)
			o, ok := ours.MethodByName(m.Name)
			if missing[ours.Elem().Name()+"."+m.Name] {
				assert.False(t, ok, "%v.%s", ours, m.Name)
				continue
			}
			if assert.True(t, ok, "%v.%s", ours, m.Name) {
				assert.Equal(t, signature(m.Type), signature(o.Type), "%v.%s", ours, m.Name)
			}
		}
	}
}

// signature is a method's type without its receiver.
func signature(f reflect.Type) string {
	s := f.String()
	return s[strings.IndexAny(s, ",)"):]
}

// kind is how a program would tell errors apart.
func kind(err error) string {
	var op *net.OpError
	name := ""
	if errors.As(err, &op) {
		name = op.Op + ": "
	}
	switch {
	case err == nil:
		return "ok"
	case err == io.EOF:
		return "EOF"
	case errors.Is(err, net.ErrClosed):
		return name + "closed"
	case errors.Is(err, os.ErrDeadlineExceeded):
		return name + "timeout"
	case errors.Is(err, syscall.ECONNRESET):
		return name + "reset"
	case errors.Is(err, syscall.EPIPE):
		return name + "broken pipe"
	case errors.Is(err, errors.ErrUnsupported):
		return name + "unsupported"
	case errors.Is(err, syscall.ENOTCONN):
		return name + "not connected"
	case errors.Is(err, syscall.EINVAL):
		return name + "invalid"
	}
	return name + err.Error()
}

// subject is a connection whose Reads wait for a while.
type subject struct {
	promised
	wait time.Duration
}

// acts call each method once. None of them waits for the peer.
var acts = []struct {
	name string
	do   func(c subject) error
}{
	{"Read", func(c subject) error {
		c.SetReadDeadline(time.Now().Add(c.wait))
		_, err := c.Read(make([]byte, 1))
		c.SetReadDeadline(time.Time{})
		return err
	}},
	{"Read nothing", func(c subject) error { _, err := c.Read(nil); return err }},
	{"Write", func(c subject) error { _, err := c.Write([]byte("x")); return err }},
	{"Write nothing", func(c subject) error { _, err := c.Write(nil); return err }},
	{"ReadFrom", func(c subject) error {
		_, err := c.ReadFrom(struct{ io.Reader }{strings.NewReader("x")})
		return err
	}},
	{"WriteTo", func(c subject) error {
		c.SetReadDeadline(time.Now().Add(c.wait))
		_, err := c.WriteTo(struct{ io.Writer }{io.Discard})
		c.SetReadDeadline(time.Time{})
		return err
	}},
	{"SetDeadline", func(c subject) error { return c.SetDeadline(time.Time{}) }},
	{"SetReadDeadline", func(c subject) error { return c.SetReadDeadline(time.Time{}) }},
	{"SetWriteDeadline", func(c subject) error { return c.SetWriteDeadline(time.Time{}) }},
	{"SetKeepAlive", func(c subject) error { return c.SetKeepAlive(true) }},
	{"SetKeepAlivePeriod", func(c subject) error { return c.SetKeepAlivePeriod(time.Minute) }},
	{"SetKeepAliveConfig", func(c subject) error { return c.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true}) }},
	{"SetLinger", func(c subject) error { return c.SetLinger(-1) }},
	{"SetNoDelay", func(c subject) error { return c.SetNoDelay(true) }},
	{"SetReadBuffer", func(c subject) error { return c.SetReadBuffer(1 << 16) }},
	{"SetReadBuffer(0)", func(c subject) error { return c.SetReadBuffer(0) }},
	{"SetWriteBuffer", func(c subject) error { return c.SetWriteBuffer(1 << 16) }},
	{"MultipathTCP", func(c subject) error { _, err := c.MultipathTCP(); return err }},
	{"SyscallConn", func(c subject) error { _, err := c.SyscallConn(); return err }},
	{"CloseRead", subject.CloseRead},
	{"CloseWrite", subject.CloseWrite},
	{"Close", func(c subject) error { return c.Close() }},
}

// state brings a connection, whose other end is peer, into a state.
type state struct {
	name string
	make func(t *testing.T, c, peer promised)
}

var states = []state{
	{"open", func(*testing.T, promised, promised) {}},
	{"half-closed by us", func(t *testing.T, c, _ promised) { require.NoError(t, c.CloseWrite()) }},
	{"half-closed by the peer", func(t *testing.T, c, peer promised) {
		require.NoError(t, peer.CloseWrite())
		awaitEnd(t, c, io.EOF)
	}},
	{"closed by the peer", func(t *testing.T, c, peer promised) {
		require.NoError(t, peer.Close())
		awaitEnd(t, c, io.EOF)
	}},
	{"closed by the peer, whose bytes were read", func(t *testing.T, c, peer promised) {
		_, err := peer.Write([]byte("12345678"))
		require.NoError(t, err)
		require.NoError(t, peer.Close())
		_, err = io.ReadFull(c, make([]byte, 8))
		require.NoError(t, err)
	}},
	{"closed by the peer, which a Write has found", func(t *testing.T, c, peer promised) {
		require.NoError(t, peer.Close())
		awaitEnd(t, c, io.EOF)
		require.Eventually(t, func() bool {
			_, err := c.Write([]byte("x"))
			return err != nil
		}, soon, time.Millisecond)
	}},
	{"read half closed by us", func(t *testing.T, c, _ promised) { require.NoError(t, c.CloseRead()) }},
	{"closed", func(t *testing.T, c, _ promised) { require.NoError(t, c.Close()) }},
	{"reset", func(t *testing.T, c, peer promised) {
		require.NoError(t, peer.SetLinger(0))
		require.NoError(t, peer.Close())
		awaitEnd(t, c, syscall.ECONNRESET)
	}},
}

// awaitEnd waits until the peer's end has arrived.
func awaitEnd(t *testing.T, c promised, want error) {
	c.SetReadDeadline(time.Now().Add(soon))
	_, err := c.Read(make([]byte, 1))
	require.ErrorIs(t, err, want)
	c.SetReadDeadline(time.Time{})
}

// inEveryState calls methods on ours beside TCP's, one after the other, and demands the same ends. A Read
// over TCP that ends within a second has something to return, and ours must have it too.
func inEveryState(t *testing.T, config *Config, sequences [][]int) {
	type step struct {
		state int
		acts  []int
	}
	steps := make(chan step, len(states)*len(sequences))
	for state := range states {
		for _, sequence := range sequences {
			steps <- step{state, sequence}
		}
	}
	close(steps)
	ends := func(s step, network string, wait func(act int) time.Duration) (kinds []string) {
		c, peer := methodPair(t, network, config)
		defer peer.Close()
		defer c.Close()
		states[s.state].make(t, c, peer)
		for i, a := range s.acts {
			kinds = append(kinds, acts[a].name+": "+kind(acts[a].do(subject{c, wait(i)})))
		}
		return kinds
	}
	var workers sync.WaitGroup
	for range 8 { // a Read that times out takes longest
		workers.Go(func() {
			for s := range steps {
				theirs := ends(s, "tcp", func(int) time.Duration { return time.Second })
				ours := ends(s, "sdp", func(act int) time.Duration {
					if strings.HasSuffix(theirs[act], "timeout") {
						return 20 * time.Millisecond
					}
					return soon
				})
				assert.Equal(t, theirs, ours, states[s.state].name)
			}
		})
	}
	workers.Wait()
}

// TestEveryMethodInEveryState calls each method once.
func TestEveryMethodInEveryState(t *testing.T) {
	var one [][]int
	for a := range acts {
		one = append(one, []int{a})
	}
	inEveryState(t, nil, one)
}

// methodPair returns the ends of a connection of package net, or of ours with the configuration.
func methodPair(t *testing.T, network string, config *Config) (c, peer promised) {
	listen, dial := net.Listen, net.Dial
	if network == "sdp" {
		listen = func(network, address string) (net.Listener, error) {
			return (&ListenConfig{Config: overEngine(config)}).Listen(context.Background(), network, address)
		}
		dial = (&Dialer{Config: overEngine(config)}).Dial
	}
	l, err := listen(network, "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	client, server, err := bothEnds(l, func(address string) (net.Conn, error) { return dial(network, address) })
	require.NoError(t, err)
	return server.(promised), client.(promised)
}

// listenerActs call each method of a listener once.
var listenerActs = []struct {
	name string
	do   func(l listening) error
}{
	{"Accept", func(l listening) error {
		l.SetDeadline(time.Now().Add(-time.Second))
		_, err := l.Accept()
		l.SetDeadline(time.Time{})
		return err
	}},
	{"SetDeadline", func(l listening) error { return l.SetDeadline(time.Time{}) }},
	{"SyscallConn", func(l listening) error {
		raw, err := l.SyscallConn()
		if err != nil {
			return err
		}
		return raw.Control(func(uintptr) {})
	}},
	{"File", func(l listening) error {
		f, err := l.File()
		if err == nil {
			f.Close()
		}
		return err
	}},
	{"Close", func(l listening) error { return l.Close() }},
}

// listening are the methods of *net.TCPListener.
type listening interface {
	net.Listener
	syscall.Conn
	File() (*os.File, error)
	SetDeadline(time.Time) error
}

func TestEveryMethodOfAListenerInEveryState(t *testing.T) {
	for _, state := range []string{"open", "closed"} {
		for _, act := range listenerActs {
			var got [2]string
			for i, listen := range []func(network, address string) (net.Listener, error){net.Listen, Listen} {
				l, err := listen("tcp", "127.0.0.1:0")
				require.NoError(t, err)
				if state == "closed" {
					require.NoError(t, l.Close())
				}
				got[i] = kind(act.do(l.(listening)))
				l.Close()
			}
			assert.Equal(t, got[0], got[1], "%s: %s", state, act.name)
		}
	}
}
