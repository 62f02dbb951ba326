package sdp

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gosdp/gosdp/internal/netname"
)

// likeNet is the library or package net for the cases of TestSetupIsLikeNets.
type likeNet struct {
	config *Config // nil: package net
}

// NewListener returns what the library makes of the program's listener.
func (l likeNet) NewListener(t *testing.T, below net.Listener) net.Listener {
	if l.config != nil {
		ln, err := NewListener(below, l.config)
		require.NoError(t, err)
		below = ln
	}
	t.Cleanup(func() { below.Close() })
	return below
}

func (l likeNet) Listen(t *testing.T, options ...int) net.Listener {
	lc := net.ListenConfig{Control: setOptions(options)}
	var ln net.Listener
	var err error
	if l.config == nil {
		ln, err = lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	} else {
		ln, err = (&ListenConfig{NetListenConfig: &lc, Config: l.config}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	}
	require.NoError(t, err)
	t.Cleanup(func() { ln.Close() })
	return ln
}

// setOptions returns a Control that sets options: pairs of a level and an option.
func setOptions(options []int) func(string, string, syscall.RawConn) error {
	return func(_, _ string, raw syscall.RawConn) (err error) {
		raw.Control(func(fd uintptr) {
			for i := 0; i < len(options); i += 2 {
				err = errors.Join(err, unix.SetsockoptInt(int(fd), options[i], options[i+1], 1))
			}
		})
		return err
	}
}

func (l likeNet) Dial(t *testing.T, ln net.Listener) net.Conn {
	var c net.Conn
	var err error
	if l.config == nil {
		c, err = net.Dial("tcp", ln.Addr().String())
	} else {
		c, err = (&Dialer{Config: l.config}).Dial("tcp", ln.Addr().String())
	}
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

func accepted(t *testing.T, ln net.Listener) net.Conn {
	c, err := ln.Accept()
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

func plainDial(t *testing.T, ln net.Listener) net.Conn { return likeNet{}.Dial(t, ln) }

func plainListen(t *testing.T) net.Listener { return likeNet{}.Listen(t) }

// handing is a listener of connections that the test has made.
type handing struct {
	net.Listener
	conns chan net.Conn
}

func hand(t *testing.T, conns ...net.Conn) handing {
	l := handing{plainListen(t), make(chan net.Conn, len(conns))}
	for _, c := range conns {
		l.conns <- c
	}
	return l
}

func (l handing) Accept() (net.Conn, error) { return <-l.conns, nil }

// asleep is a connection whose methods would wait for the client, as RemoteAddr of one with the PROXY protocol and Read
// of one with TLS do. It panics instead.
type asleep struct {
	*net.TCPConn
	*tls.Conn
}

// filtering is a listener that changes what it accepts.
type filtering struct {
	net.Listener
	change func(net.Conn) net.Conn
}

func (l filtering) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return l.change(c), nil
}

// timeless is a connection without deadlines, as a channel of ssh is.
type timeless struct{ net.Conn }

func (timeless) SetDeadline(time.Time) error      { return errors.ErrUnsupported }
func (timeless) SetReadDeadline(time.Time) error  { return errors.ErrUnsupported }
func (timeless) SetWriteDeadline(time.Time) error { return errors.ErrUnsupported }

// receive returns what arrives until there are n bytes, or an error.
func receive(c net.Conn, n int) string {
	b := make([]byte, n)
	n, err := io.ReadFull(c, b)
	if err != nil {
		return fmt.Sprintf("%q and then %v", b[:n], netname.Cause(err))
	}
	return string(b)
}

// options are those of a socket that somebody might set.
func options(t *testing.T, c any) string {
	raw, err := c.(syscall.Conn).SyscallConn()
	require.NoError(t, err)
	var is []any
	require.NoError(t, raw.Control(func(fd uintptr) {
		for _, o := range [][2]int{
			{unix.SOL_SOCKET, unix.SO_REUSEADDR}, {unix.SOL_SOCKET, unix.SO_REUSEPORT}, {unix.SOL_SOCKET, unix.SO_KEEPALIVE},
			{unix.SOL_SOCKET, unix.SO_MARK}, {unix.SOL_SOCKET, unix.SO_PRIORITY}, {unix.SOL_SOCKET, unix.SO_BUSY_POLL},
			{unix.SOL_SOCKET, unix.SO_SNDBUF}, {unix.SOL_SOCKET, unix.SO_OOBINLINE},
			{unix.IPPROTO_IP, unix.IP_FREEBIND}, {unix.IPPROTO_IP, unix.IP_BIND_ADDRESS_NO_PORT}, {unix.IPPROTO_IP, unix.IP_TRANSPARENT},
			{unix.IPPROTO_IP, unix.IP_TOS}, {unix.IPPROTO_IP, unix.IP_TTL}, {unix.IPPROTO_IP, unix.IP_RECVERR},
			{unix.IPPROTO_TCP, unix.TCP_NODELAY}, {unix.IPPROTO_TCP, unix.TCP_CORK}, {unix.IPPROTO_TCP, unix.TCP_DEFER_ACCEPT},
			{unix.IPPROTO_TCP, unix.TCP_KEEPIDLE}, {unix.IPPROTO_TCP, unix.TCP_KEEPINTVL}, {unix.IPPROTO_TCP, unix.TCP_KEEPCNT},
			{unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT}, {unix.IPPROTO_TCP, unix.TCP_LINGER2}, {unix.IPPROTO_TCP, unix.TCP_SAVE_SYN},
		} {
			v, err := unix.GetsockoptInt(int(fd), o[0], o[1])
			is = append(is, v, err)
		}
	}))
	return fmt.Sprint(is)
}

// likeNetCases are what others have reported of libraries that replace package net. Each returns what it has seen.
var likeNetCases = []struct {
	name string
	// asks is false where a listener that waits for Requests cannot be like package net's: a Dial waits for the
	// server's Accept.
	asks bool
	run  func(t *testing.T, l likeNet) string
}{
	{"nothing is asked of the program's connections", true, func(t *testing.T, l likeNet) (is string) {
		a, b := new(asleep), new(asleep)
		ln := l.NewListener(t, hand(t, a, b))
		for _, want := range []net.Conn{a, b} {
			c, err := ln.Accept()
			require.NoError(t, err)
			is += fmt.Sprint(c == want, " ")
		}
		return is
	}},
	{"types of connections", true, func(t *testing.T, l likeNet) (is string) {
		certificate, _ := certified(t)
		for _, change := range []func(net.Conn) net.Conn{
			func(c net.Conn) net.Conn { return bare{c} },
			func(c net.Conn) net.Conn { return embedding{c.(*net.TCPConn)} },
			func(c net.Conn) net.Conn {
				return tls.Server(c, &tls.Config{Certificates: []tls.Certificate{certificate}})
			},
		} {
			below := plainListen(t)
			ln := l.NewListener(t, filtering{below, change})
			plainDial(t, below)
			is += fmt.Sprintf("%T ", accepted(t, ln))
		}
		pipe, client := net.Pipe()
		defer client.Close()
		return is + fmt.Sprintf("%T", accepted(t, l.NewListener(t, hand(t, pipe))))
	}},
	{"HTTP/2 and the state of TLS", true, func(t *testing.T, l likeNet) string {
		certificate, roots := certified(t)
		below := plainListen(t)
		server := http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprint(w, r.Proto, " ", r.TLS != nil)
		})}
		defer server.Close()
		go server.Serve(l.NewListener(t, tls.NewListener(below, &tls.Config{Certificates: []tls.Certificate{certificate}, NextProtos: []string{"h2"}})))
		transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: "example.com"}, ForceAttemptHTTP2: true}
		defer transport.CloseIdleConnections()
		answer, err := (&http.Client{Transport: transport}).Get("https://" + below.Addr().String())
		require.NoError(t, err)
		defer answer.Body.Close()
		body, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		return string(body)
	}},
	{"a greeting over TLS", true, func(t *testing.T, l likeNet) string {
		certificate, roots := certified(t)
		below := plainListen(t)
		ln := l.NewListener(t, tls.NewListener(below, &tls.Config{Certificates: []tls.Certificate{certificate}}))
		client := tls.Client(plainDial(t, below), &tls.Config{RootCAs: roots, ServerName: "example.com"})
		server := accepted(t, ln)
		go io.WriteString(server, "220 ready")
		return receive(client, 9)
	}},
	{"1,100 silent clients", true, func(t *testing.T, l likeNet) string {
		var all []net.Conn
		for range 1100 {
			all = append(all, new(asleep))
		}
		ln := l.NewListener(t, hand(t, all...))
		for i, want := range all {
			c, err := ln.Accept()
			require.NoError(t, err)
			if c != want {
				return fmt.Sprint(i, " is another")
			}
		}
		return "all"
	}},
	{"a silent client without deadlines, and Close", true, func(t *testing.T, l likeNet) (is string) {
		below := plainListen(t)
		ln := l.NewListener(t, filtering{below, func(c net.Conn) net.Conn { return timeless{c} }})
		plainDial(t, below)
		accepted(t, ln)
		client := plainDial(t, below)
		_, err := io.WriteString(client, "hello")
		require.NoError(t, err)
		return receive(accepted(t, ln), 5) + fmt.Sprint(ln.Close())
	}},
	{"a deadline that the program's Accept has set", true, func(t *testing.T, l likeNet) string {
		below := plainListen(t)
		ln := l.NewListener(t, filtering{below, func(c net.Conn) net.Conn {
			c.SetReadDeadline(time.Unix(1, 0))
			return c
		}})
		client := plainDial(t, below)
		_, err := io.WriteString(client, "hello")
		require.NoError(t, err)
		return receive(accepted(t, ln), 5)
	}},
	{"a limiter", true, func(t *testing.T, l likeNet) string { // as netutil.LimitListener is
		below := plainListen(t)
		free := make(chan struct{}, 1)
		ln := l.NewListener(t, filtering{below, func(c net.Conn) net.Conn {
			free <- struct{}{}
			return bare{c}
		}})
		client := plainDial(t, below)
		server := accepted(t, ln)
		<-free
		go io.WriteString(client, "hello")
		return receive(server, 5)
	}},
	{"TCP_DEFER_ACCEPT", false, func(t *testing.T, l likeNet) string {
		ln := l.Listen(t, unix.IPPROTO_TCP, unix.TCP_DEFER_ACCEPT)
		client := l.Dial(t, ln) // which the server does not see before it writes
		_, err := io.WriteString(client, "hello")
		require.NoError(t, err)
		server := accepted(t, ln)
		is := receive(server, 5)
		for range 30 {
			exchange(t, client, server)
		}
		return is
	}},
	{"prefork", false, func(t *testing.T, l likeNet) string {
		const dials, workers = 20, 4
		var all []net.Listener
		first := l.Listen(t, unix.SOL_SOCKET, unix.SO_REUSEPORT)
		all = append(all, first)
		for range workers - 1 {
			lc := net.ListenConfig{Control: setOptions([]int{unix.SOL_SOCKET, unix.SO_REUSEPORT})}
			below, err := lc.Listen(context.Background(), "tcp", first.Addr().String())
			require.NoError(t, err)
			all = append(all, l.NewListener(t, below))
		}
		for range dials {
			l.Dial(t, first)
		}
		came := make(chan struct{})
		var working sync.WaitGroup
		for _, ln := range all {
			working.Go(func() {
				for c, err := ln.Accept(); err == nil; c, err = ln.Accept() {
					c.Close()
					came <- struct{}{}
				}
			})
		}
		for range dials {
			<-came
		}
		for _, ln := range all {
			ln.Close()
		}
		working.Wait()
		return "one connection for each Dial"
	}},
	{"Dial and Write before Accept", false, func(t *testing.T, l likeNet) string {
		ln := l.Listen(t)
		client := l.Dial(t, ln)
		written := make(chan error, 1)
		const size = 300_000
		go func() {
			_, err := client.Write(random(size))
			written <- err
		}()
		n, err := io.CopyN(io.Discard, accepted(t, ln), size)
		return fmt.Sprint(n, err, <-written)
	}},
	{"a server that accepts nothing", false, func(t *testing.T, l likeNet) string {
		ln := l.Listen(t)
		for range 10 {
			_, err := io.WriteString(l.Dial(t, ln), "hello")
			require.NoError(t, err)
		}
		return "Dials and Writes succeed"
	}},
	{"a server that marks its socket", false, func(t *testing.T, l likeNet) string {
		ln := plainListen(t)
		raw, err := ln.(syscall.Conn).SyscallConn()
		require.NoError(t, err)
		require.NoError(t, setOptions([]int{unix.IPPROTO_IP, unix.IP_FREEBIND, unix.IPPROTO_IP, unix.IP_BIND_ADDRESS_NO_PORT})("", "", raw))
		client := l.Dial(t, ln)
		_, err = io.WriteString(client, "hello")
		require.NoError(t, err)
		require.NoError(t, client.Close())
		got, err := io.ReadAll(accepted(t, ln))
		require.NoError(t, err)
		return string(got)
	}},
	{"options of sockets", false, func(t *testing.T, l likeNet) string {
		ln := l.Listen(t)
		client := l.Dial(t, ln)
		return strings.Join([]string{options(t, ln), options(t, client), options(t, accepted(t, ln))}, "\n")
	}},
	{"the check of a connection after a reset", false, func(t *testing.T, l likeNet) string { // as drivers of databases do
		ln := l.Listen(t)
		client := l.Dial(t, ln)
		server := accepted(t, ln)
		require.NoError(t, server.(interface{ SetLinger(int) error }).SetLinger(0))
		require.NoError(t, server.Close())
		raw, err := client.(syscall.Conn).SyscallConn()
		require.NoError(t, err)
		var n int
		var found error
		err = raw.Read(func(fd uintptr) bool {
			n, found = unix.Read(int(fd), make([]byte, 1))
			return found != unix.EAGAIN
		})
		return fmt.Sprint(n, found, err)
	}},
	{"Hijack", false, func(t *testing.T, l likeNet) string {
		ln := l.Listen(t)
		methods := make(chan string, 1)
		server := http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			c, rw, err := w.(http.Hijacker).Hijack()
			if !assert.NoError(t, err) {
				return
			}
			_, half := c.(interface{ CloseWrite() error })
			_, raw := c.(syscall.Conn)
			_, from := c.(io.ReaderFrom)
			_, alive := c.(interface{ SetKeepAlive(bool) error })
			methods <- fmt.Sprint(half, raw, from, alive)
			io.Copy(c, rw)
			c.Close()
		})}
		defer server.Close()
		go server.Serve(ln)
		client := l.Dial(t, ln)
		_, err := io.WriteString(client, "GET / HTTP/1.1\r\nHost: example.com\r\n\r\nhello")
		require.NoError(t, err)
		return receive(client, 5) + " " + <-methods
	}},
}

// TestSetupIsLikeNets: whatever a listener below is, and whoever dials, connections come up as over package net. The
// times of a handshake are so long that a wait for one does not end.
func TestSetupIsLikeNets(t *testing.T) {
	never := func(c Config) *Config {
		c.ReplyTimeout, c.HandshakeTimeout, c.StepUpTimeout = time.Hour, time.Hour, time.Hour
		return &c
	}
	for _, v := range likeNetCases {
		t.Run(v.name, func(t *testing.T) {
			want := v.run(t, likeNet{})
			for name, config := range map[string]*Config{
				"defaults": never(Config{}),
				"asks":     never(Config{Devices: []string{"shm", "iwarp"}, Probe: loopback}),
				"off":      never(Config{Devices: []string{"tcp"}}),
			} {
				if name == "asks" && !v.asks {
					continue
				}
				t.Run(name, func(t *testing.T) {
					watchdog := time.AfterFunc(soon, func() { panic("it waits") })
					defer watchdog.Stop()
					assert.Equal(t, want, v.run(t, likeNet{config}))
				})
			}
		})
	}
}
