package proxy

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/gosdp/gosdp/internal/meeting"
	"github.com/gosdp/gosdp/sdp"
)

// patience is how long a test waits for what comes at once, or is broken.
const patience = time.Minute

func TestMain(m *testing.M) {
	meeting.TestSelf = true // the proxy, its clients and its servers are this process
	goleak.VerifyTestMain(m)
}

// logged is a log that tests can read.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// running returns a proxy that the test's end stops.
func running(t *testing.T, limit int) (*Proxy, *logged) {
	t.Helper()
	var log logged
	p := New(slog.New(slog.NewTextHandler(&log, nil)), limit, nil)
	t.Cleanup(func() {
		now, cancel := context.WithCancel(context.Background())
		cancel()
		p.Stop(now)
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		require.NoError(t, sdp.WaitClosed(ctx))
	})
	return p, &log
}

func route(t *testing.T, listen, dial string, options ...string) Route {
	t.Helper()
	r, err := parseRoute(append([]string{listen, dial}, options...), Options{DialTimeout: patience})
	require.NoError(t, err)
	return r
}

// says starts a server that greets each client with a word and then sends back what
// comes.
func says(t *testing.T, word string) (address string) {
	t.Helper()
	return serves(t, func(c net.Conn) {
		io.WriteString(c, word)
		io.Copy(c, c)
	})
}

// serves starts a server that calls serve for each client, and then closes the connection.
func serves(t *testing.T, serve func(net.Conn)) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var all sync.WaitGroup
	t.Cleanup(func() { l.Close(); all.Wait() })
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				defer c.Close()
				serve(c)
			})
		}
	})
	return l.Addr().String()
}

// at returns the address at which the proxy's only route listens.
func at(p *Proxy) (address string) {
	p.Routes(func(_ Route, a net.Addr) { address = a.String() })
	return address
}

// client connects, over TCP or SDP, and requires the server's word.
func client(t *testing.T, network, address, word string) net.Conn {
	t.Helper()
	c, err := sdp.DialTimeout(network, address, patience)
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	hears(t, c, word)
	return c
}

func hears(t *testing.T, c net.Conn, word string) {
	t.Helper()
	require.NoError(t, c.SetDeadline(time.Now().Add(patience)))
	got := make([]byte, len(word))
	_, err := io.ReadFull(c, got)
	require.NoError(t, err)
	require.Equal(t, word, string(got))
}

func echoes(t *testing.T, c net.Conn, word string) {
	t.Helper()
	_, err := io.WriteString(c, word)
	require.NoError(t, err)
	hears(t, c, word)
}

func TestReloadKeepsConnectionsAndSockets(t *testing.T) {
	p, _ := running(t, 0)
	one, two := says(t, "one"), says(t, "two")
	require.NoError(t, p.Apply("", []Route{route(t, "tcp://127.0.0.1:0", "tcp://"+one)}))
	address := at(p)
	before := client(t, "tcp", address, "one")

	require.NoError(t, p.Apply("", []Route{route(t, "tcp://127.0.0.1:0", "tcp://"+two)}))
	require.Equal(t, address, at(p))
	client(t, "tcp", address, "two")
	echoes(t, before, "goes on")

	require.NoError(t, p.Apply("", []Route{route(t, "auto://127.0.0.1:0", "tcp://"+two)}))
	require.NotEqual(t, address, at(p))
	echoes(t, before, "goes on")
	freed(t, address)
}

// freed waits until nothing listens at the address. It does not connect: a route that is removed serves
// all who still do.
func freed(t *testing.T, address string) {
	t.Helper()
	require.Eventually(t, func() bool {
		l, err := net.Listen("tcp", address)
		if err == nil {
			l.Close()
		}
		return err == nil
	}, patience, 10*time.Millisecond, "the proxy still listens")
}

// TestReloadChangesTheProtocol has a route keep its address and change its protocol, while
// clients keep connecting. None may be refused.
func TestReloadChangesTheProtocol(t *testing.T) {
	p, _ := running(t, 0)
	server := says(t, "word")
	address := freeAddress(t)
	apply := func(network string) {
		t.Helper()
		require.NoError(t, p.Apply("", []Route{route(t, network+"://"+address, "tcp://"+server)}))
	}
	plain := func() (c net.Conn, err error) { // the server's word over TCP
		c, err = net.Dial("tcp", address)
		if err != nil {
			return nil, err
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(patience))
		_, err = io.ReadFull(c, make([]byte, len("word")))
		return c, err
	}
	apply(TCP)
	_, err := plain()
	require.NoError(t, err)
	ln := p.entrances["tcp://"+address].ln.(*net.TCPListener)
	apply(Auto)
	require.ErrorIs(t, ln.SetDeadline(time.Now()), net.ErrClosed, "two listeners share the queue")
	client(t, "sdp", address, "word")
	_, err = plain()
	require.NoError(t, err)
	require.ErrorContains(t, p.Apply("", []Route{route(t, "sdp://"+address, "tcp://"+server)}), "route cannot change to sdp://")
	apply(TCP)
	require.Eventually(t, func() bool { _, err := plain(); return err == nil }, patience, time.Millisecond)
	notMet(t, address)

	address = freeAddress(t)
	apply(SDP)
	client(t, "sdp", address, "word")
	_, err = plain()
	require.Error(t, err, "TCP is served")
	apply(TCP)
	_, err = plain()
	require.NoError(t, err)
}

// notMet requires that the ends of a connection do not meet, once no Accept that was in progress can help.
func notMet(t *testing.T, address string) {
	t.Helper()
	d := sdp.Dialer{Config: &sdp.Config{ReplyTimeout: time.Second}} // to a listener that says nothing
	require.Eventually(t, func() bool {
		c, err := d.Dial("sdp", address)
		if err == nil {
			c.Close()
		}
		return err != nil
	}, patience, time.Millisecond, "the listener shares memory")
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	return l.Addr().String()
}

func TestBadReloadChangesNothing(t *testing.T) {
	p, _ := running(t, 0)
	server := says(t, "word")
	require.NoError(t, p.Apply("f", []Route{route(t, "tcp://127.0.0.1:0", "tcp://"+server)}))
	address := at(p)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	bad := route(t, "tcp://"+taken.Addr().String(), "tcp://"+server)
	bad.Line = 17
	free := freeAddress(t)
	err = p.Apply("f", []Route{route(t, "tcp://"+free, "tcp://"+server), bad})
	require.ErrorContains(t, err, "f:17: ")
	require.Equal(t, address, at(p))
	client(t, "tcp", address, "word")
	_, err = net.Dial("tcp", free)
	require.Error(t, err, "half of a bad configuration is served")
}

// TestBadReloadTakesNoSocketOver has one route change its protocol beside one that cannot
// listen.
func TestBadReloadTakesNoSocketOver(t *testing.T) {
	p, _ := running(t, 0)
	server := says(t, "word")
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	bad := route(t, "tcp://"+taken.Addr().String(), "tcp://"+server)
	for before, after := range map[string]string{Auto: TCP, TCP: Auto} {
		address := freeAddress(t)
		require.NoError(t, p.Apply("", []Route{route(t, before+"://"+address, "tcp://"+server)}))
		require.Error(t, p.Apply("", []Route{route(t, after+"://"+address, "tcp://"+server), bad}))
		if client(t, "tcp", address, "word"); before == Auto {
			client(t, "sdp", address, "word")
		} else {
			notMet(t, address)
		}
	}
}

func TestInheritedUnixSocketIsRefused(t *testing.T) {
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	require.NoError(t, err)
	defer l.Close()
	f, err := l.(*net.UnixListener).File()
	require.NoError(t, err)
	defer f.Close()
	p, _ := running(t, 0)
	p.inherited = map[string]*os.File{"x": f}
	for _, network := range []string{TCP, Auto} {
		require.ErrorContains(t, p.Apply("", []Route{route(t, network+"://@x", "tcp://127.0.0.1:1")}), "not a TCP socket")
	}
}

func TestLimits(t *testing.T) {
	for name, limits := range map[string][2]string{"route": {"limit=1", "0"}, "process": {"limit=0", "1"}} {
		t.Run(name, func(t *testing.T) {
			p, _ := running(t, len(strings.Trim(limits[1], "0")))
			require.NoError(t, p.Apply("", []Route{route(t, "tcp://127.0.0.1:0", "tcp://"+says(t, "word"), limits[0])}))
			first := client(t, "tcp", at(p), "word")
			second, err := net.Dial("tcp", at(p))
			require.NoError(t, err)
			defer second.Close()
			require.NoError(t, second.SetDeadline(time.Now().Add(50*time.Millisecond)))
			_, err = second.Read(make([]byte, 1))
			require.ErrorContains(t, err, "timeout", "a connection too many is relayed")
			require.NoError(t, first.Close())
			hears(t, second, "word")
		})
	}
}

// TestTargetIsTheProxy has proxies that dial themselves, over each protocol, one through another
// of their routes. Each ends with an error after it has accepted itself once, or a few times if
// the Dial is tried again.
func TestTargetIsTheProxy(t *testing.T) {
	free := func() string {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		defer l.Close()
		return l.Addr().String()
	}
	for _, protocols := range [][2]string{{"tcp", "tcp"}, {"tcp", "sdp"}, {"tcp", "auto"}, {"sdp", "sdp"}, {"auto", "auto"}, {"auto", "tcp"}} {
		t.Run(protocols[0]+" to "+protocols[1], func(t *testing.T) {
			one, two := free(), free()
			_, port, _ := net.SplitHostPort(two)
			for name, routes := range map[string][]Route{
				"itself":        {route(t, protocols[0]+"://"+one, protocols[1]+"://"+one)},
				"another route": {route(t, protocols[0]+"://"+one, protocols[1]+"://"+two), route(t, protocols[0]+"://"+two, protocols[1]+"://"+one)},
				"any address":   {route(t, protocols[0]+"://"+two, protocols[1]+"://0.0.0.0:"+port)},
			} {
				t.Run(name, func(t *testing.T) {
					p, log := running(t, 100)
					require.NoError(t, p.Apply("", routes))
					var c net.Conn
					var err error
					if protocols[0] == "sdp" {
						c, err = sdp.DialTimeout("sdp", routes[0].Listen.Address, patience)
					} else { // package sdp would dial again after a reset, which is not the proxy's doing
						c, err = net.DialTimeout("tcp", routes[0].Listen.Address, patience)
					}
					if err == nil { // it may have been reset before Dial looked
						defer c.Close()
						require.NoError(t, c.SetDeadline(time.Now().Add(patience)))
						_, err = c.Read(make([]byte, 1))
					}
					require.Error(t, err)
					require.NotErrorIs(t, err, os.ErrDeadlineExceeded)
					require.Eventually(t, func() bool { return p.Open() == 0 }, patience, time.Millisecond)
					require.Contains(t, log.String(), "target is the proxy itself")
					accepted := uint64(0)
					p.mu.Lock()
					for _, e := range p.entrances {
						accepted += e.accepted.Load()
					}
					p.mu.Unlock()
					require.LessOrEqual(t, accepted, uint64(4))
					p.loops.mu.Lock()
					defer p.loops.mu.Unlock()
					require.Empty(t, p.loops.dialled, "ended connections are remembered")
					require.Empty(t, p.loops.pending)
				})
			}
		})
	}
}

func TestClientsWithoutSDPAreReset(t *testing.T) {
	p, _ := running(t, 0)
	require.NoError(t, p.Apply("", []Route{route(t, "sdp://127.0.0.1:0", "tcp://"+says(t, "word"))}))
	client(t, "sdp", at(p), "word")
	c, err := net.Dial("tcp", at(p))
	if err == nil { // else the reset came before connect(2) returned
		defer c.Close()
		require.NoError(t, c.SetDeadline(time.Now().Add(patience)))
		_, err = c.Read(make([]byte, 1))
	}
	require.ErrorContains(t, err, "reset")
}

func TestInheritedSocketIsServed(t *testing.T) {
	for _, network := range []string{TCP, Auto} {
		p, _ := running(t, 0)
		p.inherited = inheritable(t, "a")
		require.NoError(t, p.Apply("", []Route{route(t, network+"://@a", "tcp://"+says(t, "word"))}))
		client(t, "tcp", at(p), "word")
		if network == Auto {
			client(t, "sdp", at(p), "word")
		}
	}
}

func TestMissingInheritedSocketIsNamed(t *testing.T) {
	p, _ := running(t, 0)
	err := p.Apply("", []Route{route(t, "tcp://@web", "tcp://127.0.0.1:1")})
	require.ErrorContains(t, err, `no socket named "web"`)
}

// TestStopServesTheQueue stops the proxy when most clients are in the kernel's queue, because
// the limit lets one in at a time. With a limit of the process fewer may wait in it.
func TestStopServesTheQueue(t *testing.T) {
	for _, listen := range []string{TCP, Auto} {
		for _, limit := range []int{0, 1} {
			t.Run(fmt.Sprintf("%s, limit %d", listen, limit), func(t *testing.T) { servesTheQueue(t, listen, limit) })
		}
	}
}

func servesTheQueue(t *testing.T, listen string, limit int) {
	p, _ := running(t, limit)
	require.NoError(t, p.Apply("", []Route{route(t, listen+"://127.0.0.1:0", "tcp://"+says(t, "word"), "limit=1")}))
	address := at(p)
	clients := make([]net.Conn, 50)
	for i := range clients {
		c, err := net.Dial("tcp", address)
		require.NoError(t, err)
		defer c.Close()
		clients[i] = c
	}
	hears(t, clients[0], "word")                 // so that the listener was not too late for all of them
	_, err := io.WriteString(clients[0], "word") // for the loop below
	require.NoError(t, err)
	stopped := make(chan int)
	go func() { stopped <- p.Stop(t.Context()) }()
	for _, c := range clients {
		hears(t, c, "word")
		require.NoError(t, c.(*net.TCPConn).CloseWrite())
		rest, err := io.ReadAll(c)
		require.NoError(t, err)
		require.Empty(t, rest)
		require.NoError(t, c.Close())
	}
	require.Zero(t, <-stopped)
	_, err = net.Dial("tcp", address)
	require.Error(t, err)
}

// TestAFullRouteStopsListening removes a route, and later stops the proxy, while one client is relayed
// and others wait because of a limit. The address is free at once, and the clients are served.
func TestAFullRouteStopsListening(t *testing.T) {
	for _, listen := range []string{TCP, Auto} {
		t.Run(listen, func(t *testing.T) {
			p, _ := running(t, 0)
			address := freeAddress(t)
			server := says(t, "word")
			full := route(t, listen+"://"+address, "tcp://"+server, "limit=1")
			wait := func() (clients []net.Conn) {
				clients = append(clients, client(t, "tcp", address, "word"))
				for range 3 {
					c, err := sdp.DialTimeout("tcp", address, patience)
					require.NoError(t, err)
					t.Cleanup(func() { c.Close() })
					clients = append(clients, c)
				}
				return clients
			}
			serve := func(clients []net.Conn) {
				for i, c := range clients {
					if i > 0 {
						hears(t, c, "word")
					}
					echoes(t, c, "more")
					require.NoError(t, c.Close())
				}
			}
			require.NoError(t, p.Apply("", []Route{full}))
			clients := wait()
			require.NoError(t, p.Apply("", []Route{route(t, "tcp://127.0.0.1:0", "tcp://"+server)}))
			freed(t, address)
			again := route(t, listen+"://"+address, "tcp://"+server)
			require.NoError(t, p.Apply("", []Route{again}), "the route cannot come back")
			serve(clients)

			require.NoError(t, p.Apply("", []Route{full}))
			clients = wait()
			stopped := make(chan int)
			go func() { stopped <- p.Stop(t.Context()) }()
			freed(t, address)
			serve(clients)
			require.Zero(t, <-stopped)
		})
	}
}

// TestClientsThatWaitAreBounded: they take no descriptors that relays need.
func TestClientsThatWaitAreBounded(t *testing.T) {
	p := New(slog.New(slog.DiscardHandler), 10, nil)
	p.clients.Store(10 + reserved/2 - 1)
	require.True(t, p.mayWait())
	p.clients.Store(10 + reserved/2)
	require.False(t, p.mayWait())
}

func TestEndpoints(t *testing.T) {
	p, _ := running(t, 0)
	get := func(path string) (int, string) {
		w := httptest.NewRecorder()
		p.Handler().ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		return w.Code, w.Body.String()
	}
	status, _ := get("/ready")
	require.Equal(t, 503, status)
	status, _ = get("/live")
	require.Equal(t, 200, status)
	require.NoError(t, p.Apply("", []Route{route(t, "auto://127.0.0.1:0", "tcp://"+says(t, "word"))}))
	status, _ = get("/ready")
	require.Equal(t, 200, status)

	c := client(t, "sdp", at(p), "word")
	echoes(t, c, "12345")
	_, text := get("/metrics")
	for _, want := range []string{
		"# TYPE sdp_proxy_connections gauge\n",
		`sdp_proxy_connections{listen="auto://127.0.0.1:0"} 1` + "\n",
		`sdp_proxy_accepted_total{listen="auto://127.0.0.1:0"} 1` + "\n",
		`sdp_proxy_bytes_total{listen="auto://127.0.0.1:0",direction="up"} 5` + "\n",
		`sdp_proxy_bytes_total{listen="auto://127.0.0.1:0",direction="down"} 9` + "\n",
		`sdp_proxy_reloads_total{result="ok"} 1` + "\n",
	} {
		require.Contains(t, text, want)
	}
	require.NoError(t, c.Close())
	require.Eventually(t, func() bool {
		_, text := get("/metrics")
		return strings.Contains(text, `sdp_proxy_connections{listen="auto://127.0.0.1:0"} 0`) &&
			strings.Contains(text, `direction="up"} 5`)
	}, patience, time.Millisecond)
	p.Unready()
	status, _ = get("/ready")
	require.Equal(t, 503, status)
}

// TestRemovedRoutesKeepTheirCounters removes a route, whose counters may not go back.
func TestRemovedRoutesKeepTheirCounters(t *testing.T) {
	p, _ := running(t, 0)
	server := says(t, "word")
	for range 3 {
		require.NoError(t, p.Apply("", []Route{route(t, "tcp://127.0.0.1:0", "tcp://"+server)}))
		c := client(t, "tcp", at(p), "word")
		require.NoError(t, p.Apply("", []Route{route(t, "tcp://localhost:0", "tcp://"+server)}))
		require.NoError(t, c.Close())
		require.Eventually(t, func() bool { return p.Open() == 0 }, patience, time.Millisecond)
	}
	require.EqualValues(t, 3, p.totals()["tcp://127.0.0.1:0"].accepted)
	require.EqualValues(t, 12, p.totals()["tcp://127.0.0.1:0"].down)
	require.Eventually(t, func() bool {
		require.NoError(t, p.Apply("", []Route{route(t, "tcp://localhost:0", "tcp://"+server)}))
		return len(p.removed) == 0
	}, patience, time.Millisecond, "removed routes are kept for ever")
	require.EqualValues(t, 12, p.totals()["tcp://127.0.0.1:0"].down)
}

func TestComplaintsAreBounded(t *testing.T) {
	var c complaints
	now := time.Now()
	logged := 0
	for range 1000 {
		if _, log := c.next("one", now); log {
			logged++
		}
	}
	require.Equal(t, complaintsMost, logged)
	more, log := c.next("two", now)
	require.True(t, log, "one kind hides another")
	require.Zero(t, more)
	more, log = c.next("one", now.Add(complaintsTime))
	require.True(t, log)
	require.Equal(t, 1000-complaintsMost, more)
}
