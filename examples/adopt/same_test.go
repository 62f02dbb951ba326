package adopt

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/examples/internal/certs"
	"github.com/gosdp/gosdp/sdp"
	"github.com/gosdp/gosdp/sdp/stats"
)

// TestMain sets the proxy of all clients that ask the environment for one. None uses it for this host.
func TestMain(m *testing.M) {
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY"} {
		os.Setenv(name, "http://"+proxy.Addr().String())
	}
	os.Setenv("NO_PROXY", "")
	os.Exit(m.Run())
}

// A script uses a client, and returns what it and its servers saw. If recipe is not set, the client is the
// library's default one.
type script func(t *testing.T, recipe bool) []string

// same runs a script over both clients, and requires that they do the same.
func (s script) same(t *testing.T) {
	t.Helper()
	require.Equal(t, s.saw(t, false), s.saw(t, true))
}

// saw runs a script, and returns what it saw.
func (s script) saw(t *testing.T, recipe bool) (saw []string) {
	t.Helper()
	before := dials()
	t.Run(map[bool]string{false: "default", true: "recipe"}[recipe], func(t *testing.T) {
		for _, line := range s(t, recipe) {
			saw = append(saw, addresses.ReplaceAllString(line, "ADDRESS"))
			t.Log(saw[len(saw)-1])
		}
	})
	if recipe {
		require.NotEqual(t, before, dials(), "the library has made no connection")
	} else {
		require.Equal(t, before, dials(), "the library has made a connection of the default client")
	}
	return saw
}

// dials returns what the library has dialled. The servers are package net's. Dials that have failed do not count: one
// of a client of an earlier test, which is closed, may end late.
func dials() stats.Setups {
	s := sdp.SetupStats()
	s.Failed = 0
	return s
}

var errUnlimited = errors.New("a call had no time limit")

// watched returns a context for calls that must end without it.
func watched(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, errUnlimited)
	t.Cleanup(func() {
		require.NotErrorIs(t, context.Cause(ctx), errUnlimited)
		cancel()
	})
	return ctx
}

var addresses = regexp.MustCompile(`127\.0\.0\.1:[0-9]+`)

// outcome returns what an error says. Whether a context or a socket noticed first that the client's time was
// over is a matter of chance. The kernel's time limit is another one.
func outcome(err error) string {
	var timeout net.Error
	switch {
	case err == nil:
		return "success"
	case errors.Is(err, syscall.ETIMEDOUT):
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return "timeout"
	}
	return err.Error()
}

// identities are those of the servers and of the clients.
var identities = sync.OnceValues(func() (certs.Identity, certs.Identity) {
	server, client, err := certs.New("client")
	if err != nil {
		panic(err)
	}
	return server, client
})

// clientTLS returns a client's configuration.
func clientTLS(t *testing.T) *tls.Config {
	t.Helper()
	_, client := identities()
	config, err := client.Config()
	require.NoError(t, err)
	return config
}

// A server accepts connections with package net, and records what it sees of them.
type server struct {
	net.Listener
	tls *tls.Config

	mu   sync.Mutex
	seen []string
}

// serve starts a server on a network. handle has its connections, and the first bytes of each as soon as it
// sent them.
func serve(t *testing.T, network, address string, handle func(s *server, conn net.Conn)) *server {
	t.Helper()
	listener, err := net.Listen(network, address)
	require.NoError(t, err)
	s := &server{Listener: listener}
	identity, _ := identities()
	config, err := identity.Config()
	require.NoError(t, err)
	config.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		s.saw("TLS for %q, protocols %q", hello.ServerName, hello.SupportedProtos)
		return nil, nil
	}
	s.tls = config
	var accepting, handling sync.WaitGroup
	var conns []net.Conn
	accepting.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			conns = append(conns, conn)
			handling.Go(func() {
				defer conn.Close()
				handle(s, conn)
			})
		}
	})
	t.Cleanup(func() {
		listener.Close()
		accepting.Wait()
		for _, conn := range conns { // that a client left open
			conn.Close()
		}
		handling.Wait()
	})
	return s
}

// saw records an event.
func (s *server) saw(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen = append(s.seen, fmt.Sprintf(format, args...))
}

// sawSocket records the options of the client's socket. The client must have sent something: otherwise it
// may still be setting them.
func (s *server) sawSocket(t *testing.T, conn net.Conn) {
	s.saw("%s", socketOptions(t, conn.RemoteAddr()))
}

// all returns the events.
func (s *server) all() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string{}, s.seen...)
}

// A buffered is a connection whose first bytes were looked at.
type buffered struct {
	net.Conn
	*bufio.Reader
}

func (b buffered) Read(p []byte) (int, error) { return b.Reader.Read(p) }

// peek returns a connection after its first byte arrived, and whether that is one of TLS.
func peek(conn net.Conn) (c net.Conn, isTLS bool) {
	b := buffered{conn, bufio.NewReader(conn)}
	first, err := b.Peek(1)
	return b, err == nil && first[0] == 0x16
}

// stalled returns the address of a server to which a connection is neither made nor refused.
func stalled(t *testing.T) string {
	t.Helper()
	listener, stall := stallable(t)
	stall()
	return listener.Addr().String()
}

// proxy is an HTTP proxy that refuses everything, and records what it was asked for.
var proxy = func() *server {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	s := &server{Listener: listener}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				request, err := http.ReadRequest(bufio.NewReader(conn))
				if err != nil {
					return
				}
				s.saw("proxy: %s %s", request.Method, request.RequestURI)
				fmt.Fprint(conn, "HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
			}()
		}
	}()
	return s
}()

// proxied returns what the proxy was asked for since the last call.
func proxied() []string {
	proxy.mu.Lock()
	defer proxy.mu.Unlock()
	seen := proxy.seen
	proxy.seen = nil
	return seen
}

// TestOutcome: outcome keeps what clients may differ in.
func TestOutcome(t *testing.T) {
	require.Equal(t, "success", outcome(nil))
	require.Equal(t, "timeout", outcome(fmt.Errorf("connect: %w", os.ErrDeadlineExceeded)))
	require.NotEqual(t, "timeout", outcome(&net.OpError{Op: "dial", Err: syscall.ETIMEDOUT}))
	_, err := net.Dial("tcp", refused(t))
	require.Contains(t, strings.ToLower(outcome(err)), "refused")
}
