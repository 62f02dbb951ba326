//go:build linux

package inside

import (
	"context"
	"io"
	"net"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/sdp"
)

// TestLockedMemory measures how much memory a connection locks: when it has just been opened, after a
// Write of 1 MB, after a long stream, and when it has been idle for 5 s.
func TestLockedMemory(t *testing.T) {
	const conns = 8
	type ends struct{ client, server *sdp.Conn }
	before, _ := memoryOf(t)
	var all []ends
	for range conns {
		c, s := pair(t, benchConfig(copying))
		exchange(t, c, s, 1, 1)
		all = append(all, ends{c, s})
	}
	check := func(what string, most int) {
		t.Helper()
		now, _ := memoryOf(t)
		each := (now - before) / (2 * conns)
		t.Logf("locked by each end, %-28s %5d KB, of at most %5d KB", what, each>>10, most>>10)
		assert.LessOrEqual(t, each, most, what)
	}
	idle := func() { time.Sleep(5 * time.Second) } // what is measured is what this time does
	check("idle:", 128<<10)
	for _, e := range all {
		exchange(t, e.client, e.server, 1, 1<<20)
	}
	check("after a Write of 1 MB:", 2<<20)
	idle()
	check("5 s later:", 256<<10)
	for _, e := range all {
		stream(t, e.client, e.server, 6<<20)
	}
	check("after a stream of 6 MB:", 2<<20)
	assert.Greater(t, all[conns-1].server.Stats().BufferSize, 2<<10, "the buffers have grown")
	idle()
	check("5 s later:", 256<<10)
	assert.Equal(t, 2<<10, all[0].server.Stats().BufferSize)
	for _, e := range all {
		exchange(t, e.client, e.server, 3, 100<<10)
		exchange(t, e.server, e.client, 3, 100<<10)
	}
}

// stream writes so many bytes in Writes of 64 KB, while the other end reads.
func stream(t *testing.T, from, to *sdp.Conn, size int) {
	t.Helper()
	var writing sync.WaitGroup
	writing.Go(func() {
		block := make([]byte, 64<<10)
		for sent := 0; sent < size; sent += len(block) {
			_, err := from.Write(block)
			assert.NoError(t, err)
		}
	})
	_, err := io.CopyN(io.Discard, struct{ io.Reader }{to}, int64(size))
	writing.Wait()
	require.NoError(t, err)
}

// plainTCP is the reason of a connection for which the budget has no room.
const plainTCP = "plain TCP"

// many dials n connections at once, and returns those that use verbs. The others are closed; their
// reasons are returned.
func many(t *testing.T, n int, at time.Duration, client, server *sdp.Config) (conns []net.Conn, reasons []string) {
	t.Helper()
	ln, err := (&sdp.ListenConfig{Config: server}).Listen(context.Background(), "tcp", address(t))
	require.NoError(t, err)
	var mu sync.Mutex
	var accepting, dialling sync.WaitGroup
	add := func(c net.Conn) {
		mu.Lock()
		defer mu.Unlock()
		conns = append(conns, c)
	}
	accepting.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			add(c)
		}
	})
	ctx, cancel := context.WithTimeout(context.Background(), at)
	defer cancel()
	for range n {
		dialling.Go(func() {
			c, err := (&sdp.Dialer{Config: client}).DialContext(ctx, "tcp", ln.Addr().String())
			if !assert.NoError(t, err) {
				return
			}
			add(c)
			switch c := c.(type) {
			case *sdp.Conn:
				if c.Device() != "verbs" {
					mu.Lock()
					reasons = append(reasons, c.Stats().Declined["verbs"])
					mu.Unlock()
				}
			default:
				mu.Lock()
				reasons = append(reasons, plainTCP)
				mu.Unlock()
				_, err := c.Write([]byte{1}) // the listener waits for the first bytes of a client that may ask
				assert.NoError(t, err)
			}
		})
	}
	dialling.Wait()
	assert.Eventually(t, func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(conns) == 2*n
	}, 10*time.Second, time.Millisecond, "every client is accepted")
	ln.Close()
	accepting.Wait()
	t.Cleanup(func() {
		var closing sync.WaitGroup
		for _, c := range conns {
			closing.Go(func() { c.Close() })
		}
		closing.Wait()
		require.NoError(t, sdp.WaitClosed(context.Background()))
	})
	return conns, reasons
}

// patient is onVerbs, but with iwarp and with time for many dials on a slow processor.
var patient = &sdp.Config{
	Devices: []string{"verbs", "iwarp"}, Probe: everyone, StepUpTimeout: time.Minute, HandshakeTimeout: 2 * time.Minute, ReplyTimeout: time.Minute,
}

// limitMemory sets the memory limit of the process until the test ends.
func limitMemory(t *testing.T, bytes int64) {
	t.Helper()
	previous := sdp.SetMemoryLimit(bytes)
	t.Cleanup(func() { sdp.SetMemoryLimit(previous) })
}

// TestDialsAtOnce: 200 dials at once are all on verbs.
func TestDialsAtOnce(t *testing.T) {
	if onSiw(t) {
		t.Skip("missing: RoCE or InfiniBand; siw's requests are limited to 16 at a time")
	}
	_, reasons := many(t, 200, time.Minute, patient, patient)
	assert.Empty(t, reasons)
}

// onSiw reports whether the device is siw.
func onSiw(t *testing.T) bool {
	t.Helper()
	c, s := pair(t, onVerbs)
	defer c.Close()
	defer s.Close()
	for name := range sdp.Stats().Pinned {
		if strings.HasPrefix(name, "siw") {
			return true
		}
	}
	return false
}

// TestThousandConnections: a thousand connections, with both ends in this process, are all on verbs and
// lock at most 300 MB.
func TestThousandConnections(t *testing.T) {
	if onSiw(t) {
		t.Skip("missing: RoCE or InfiniBand; siw's requests are limited to 16 at a time")
	}
	const conns = 1000
	files := syscall.Rlimit{Cur: 16 * conns, Max: 16 * conns} // each end has four
	require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &files))
	before, _ := memoryOf(t)
	start := time.Now()
	limitMemory(t, 512<<20)
	cfg := patient
	ln, err := (&sdp.ListenConfig{Config: cfg}).Listen(context.Background(), "tcp", address(t))
	require.NoError(t, err)
	defer ln.Close()
	clients, servers := make([]*sdp.Conn, conns), make([]*sdp.Conn, conns)
	places := make(chan struct{}, 32)
	var dialling sync.WaitGroup
	dialling.Go(func() {
		for k := range servers {
			s, err := ln.Accept()
			if !assert.NoError(t, err) {
				return
			}
			servers[k] = s.(*sdp.Conn)
		}
	})
	for i := range clients {
		places <- struct{}{}
		dialling.Go(func() {
			defer func() { <-places }()
			c, err := (&sdp.Dialer{Config: cfg}).Dial("tcp", ln.Addr().String())
			if !assert.NoError(t, err) {
				return
			}
			clients[i] = c.(*sdp.Conn)
			assert.Equal(t, "verbs", clients[i].Device(), "%v", clients[i].Stats().Declined)
		})
	}

	dialling.Wait()
	now, resident := memoryOf(t)
	runtime.GC()
	t.Logf("%d connections after %v: %d KB locked by each end, %d MB by both ends of all, %d MB resident; %v",
		conns, time.Since(start), (now-before)/(2*conns)>>10, (now-before)>>20, resident>>20, sdp.Stats().Pinned)
	assert.LessOrEqual(t, now-before, 300<<20)
	var closing sync.WaitGroup
	for _, c := range append(clients, servers...) {
		closing.Go(func() { c.Close() })
	}
	closing.Wait()
	require.NoError(t, sdp.WaitClosed(context.Background()))
	after, _ := memoryOf(t)
	assert.LessOrEqual(t, after, before+1<<20, "everything is given back")
}

// TestSilentPeers: peers that connect and say nothing lock no more than the least each, within the
// budget. When it is used up, connections do without verbs and say why, or are plain TCP.
func TestSilentPeers(t *testing.T) {
	const most = 6 << 20 // bytes that may be locked
	before, _ := memoryOf(t)
	limitMemory(t, most)
	conns, reasons := many(t, 64, time.Minute, patient, patient)
	now, _ := memoryOf(t)
	t.Logf("%d KB are locked by %d ends, of which %d do without verbs", (now-before)>>10, len(conns), len(reasons))
	assert.LessOrEqual(t, now-before, most)
	assert.NotEmpty(t, reasons)
	for _, why := range reasons {
		if why != plainTCP && !strings.Contains(why, "server cannot open the channel") { // it does not tell a client more
			assert.Contains(t, why, "locked memory")
		}
	}
}
