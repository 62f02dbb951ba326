package main

import (
	"bufio"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestPageIsForTheSameHost(t *testing.T) {
	h := sameHost(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for _, c := range []struct {
		from, at, host string
		want           int
	}{
		{"127.0.0.1:1", "127.0.0.1:80", "localhost", 200},
		{"[::1]:1", "[::1]:80", "[::1]:80", 200},
		{"[::ffff:127.0.0.1]:1", "127.0.0.1:80", "127.0.0.1:80", 200},
		{"192.0.2.1:1", "192.0.2.1:80", "192.0.2.1:80", 200},
		{"[::ffff:192.0.2.1]:1", "192.0.2.1:80", "192.0.2.1", 200},
		{"[2001:db8::1]:1", "[2001:db8::1]:80", "[2001:db8::1]", 200},
		{"[fe80::1%eth0]:1", "[fe80::1%eth0]:80", "[fe80::1]:80", 200},
		{"127.0.0.1:1", "127.0.0.1:80", "LocalHost:80", 200},
		{"192.0.2.1:1", "192.0.2.2:80", "192.0.2.2:80", 403},
		{"192.0.2.1:1", "", "192.0.2.1", 403},
		{"[fe80::1%eth0]:1", "[fe80::2%eth0]:80", "[fe80::2]:80", 403},
		{"", "127.0.0.1:80", "localhost", 403},
		{"127.0.0.1:1", "127.0.0.1:80", "evil.example", 403},
		{"127.0.0.1:1", "127.0.0.1:80", "evil.example:80", 403},
		{"127.0.0.1:1", "127.0.0.1:80", "127.0.0.1.evil.example:80", 403},
		{"127.0.0.1:1", "127.0.0.1:80", "localhost.evil.example", 403},
		{"127.0.0.1:1", "127.0.0.1:80", "", 403},
	} {
		r := httptest.NewRequest("GET", "/debug/sdp", nil)
		r.RemoteAddr, r.Host = c.from, c.host
		if at, err := netip.ParseAddrPort(c.at); err == nil {
			r = r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, net.TCPAddrFromAddrPort(at)))
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		require.Equal(t, c.want, w.Code, c)
	}
}

// TestPageByAName asks over a connection.
func TestPageByAName(t *testing.T) {
	address := servingHTTP(t, sameHost(http.NotFoundHandler()))
	for request, want := range map[string]int{
		"GET / HTTP/1.1\r\nHost: " + address + "\r\n\r\n":      404,
		"GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n":         403,
		"GET http://evil.example/ HTTP/1.1\r\nHost: a\r\n\r\n": 403,
	} {
		r, err := http.ReadResponse(bufio.NewReader(dialHTTP(t, address, request)), nil)
		require.NoError(t, err)
		r.Body.Close()
		require.Equal(t, want, r.StatusCode, request)
	}
}

// servingHTTP serves the handler and returns the address.
func servingHTTP(t *testing.T, h http.Handler) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address = l.Addr().String()
	require.NoError(t, l.Close())
	stop, err := serveHTTP(address, h, slog.New(slog.NewTextHandler(os.Stderr, nil)))
	require.NoError(t, err)
	t.Cleanup(stop)
	return address
}

// dialHTTP connects, and sends a request if there is one.
func dialHTTP(t *testing.T, address, request string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", address)
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	require.NoError(t, c.SetDeadline(time.Now().Add(patience)))
	_, err = io.WriteString(c, request)
	require.NoError(t, err)
	return c
}

const getLive = "GET /live HTTP/1.1\r\nHost: localhost\r\n\r\n"

// answered requires a response.
func answered(t *testing.T, c net.Conn) {
	t.Helper()
	r, err := http.ReadResponse(bufio.NewReader(c), nil)
	require.NoError(t, err)
	r.Body.Close()
}

// A pipeListener accepts ends of pipes.
type pipeListener chan net.Conn

func (l pipeListener) Accept() (net.Conn, error) {
	if c, ok := <-l; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}

func (l pipeListener) Close() error   { return nil }
func (l pipeListener) Addr() net.Addr { return &net.TCPAddr{} }

// pipeHTTP serves the handler in a bubble of synctest. dial connects, after all clients before, and sends a
// request if there is one.
func pipeHTTP(t *testing.T, h http.Handler) (dial func(request string) net.Conn) {
	ln, server := make(pipeListener), newHTTPServer(h, slog.New(slog.DiscardHandler))
	go server.Serve(ln)
	t.Cleanup(func() {
		close(ln) // Close waits for Serve
		server.Close()
	})
	return func(request string) net.Conn {
		time.Sleep(time.Nanosecond)
		client, accepted := net.Pipe()
		t.Cleanup(func() { client.Close() })
		ln <- accepted
		_, err := io.WriteString(client, request)
		require.NoError(t, err)
		return client
	}
}

// TestHTTPClientsWithoutRequests has as many clients as may be, which ask for nothing, or for nothing
// more, or do not send all that they announce. A probe is still answered.
func TestHTTPClientsWithoutRequests(t *testing.T) {
	const getBody = "GET /live HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n"
	for name, request := range map[string]string{"silent": "", "idle": getLive, "without a body": getBody} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dial := pipeHTTP(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
				var ended atomic.Int32
				for range maxHTTP {
					c := dial(request)
					if request == getLive {
						answered(t, c)
					}
					go func() {
						io.Copy(io.Discard, c)
						ended.Add(1)
					}()
				}
				const probes = 3
				for range probes {
					answered(t, dial(getLive))
				}
				synctest.Wait()
				require.EqualValues(t, probes, ended.Load(), "a place is taken from one client for each probe")
			})
		})
	}
}

// TestWhichHTTPClientIsClosed has clients in a known order: the one that has been silent for longest
// gives up its place, whether it has a request or not.
func TestWhichHTTPClientIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clients := httpClients{open: make(map[net.Conn]time.Time)}
		set := func(c net.Conn, state http.ConnState) net.Conn {
			time.Sleep(time.Nanosecond)
			return clients.set(c, state)
		}
		conns := make([]net.Conn, maxHTTP)
		for i := range conns {
			conns[i] = &net.TCPConn{}
			require.Nil(t, set(conns[i], http.StateNew))
		}
		set(conns[2], http.StateActive)
		set(conns[1], http.StateActive)
		set(conns[1], http.StateIdle)
		for _, oldest := range slices.Concat(conns[:1], conns[3:], conns[2:3], conns[1:2]) {
			require.Same(t, oldest, set(&net.TCPConn{}, http.StateNew))
			require.Nil(t, set(oldest, http.StateActive), "it takes no place again")
		}
		require.Len(t, clients.open, maxHTTP)
	})
}

// TestSilentHTTPClientsAreClosed has a client that connects and one that begins a request.
func TestSilentHTTPClientsAreClosed(t *testing.T) {
	for _, request := range []string{"", "GET"} {
		synctest.Test(t, func(t *testing.T) {
			client, start := pipeHTTP(t, http.NotFoundHandler())(request), time.Now()
			io.ReadAll(client)
			require.Equal(t, 2*time.Second, time.Since(start))
		})
	}
}

// TestBusyHTTPClientsAreBounded has as many clients as may be, whose requests are in progress. One
// more takes the place of one of them.
func TestBusyHTTPClientsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		goOn := make(chan struct{})
		dial := pipeHTTP(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-goOn }))
		var clients []net.Conn
		for range maxHTTP + 1 {
			clients = append(clients, dial(getLive))
		}
		_, err := clients[0].Read(make([]byte, 1))
		require.ErrorIs(t, err, io.EOF, "one client more is served")
		close(goOn)
		for _, c := range clients[1:] {
			answered(t, c)
		}
	})
}
