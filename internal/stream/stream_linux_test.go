package stream

import (
	"bytes"
	"context"
	"flag"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/net/nettest"
	"golang.org/x/sys/unix"

	"github.com/gosdp/gosdp/internal/shm"
)

func TestMain(m *testing.M) {
	flag.Set("test.parallel", "8") // the processes of TestMatrix mostly wait for each other
	goleak.VerifyTestMain(m)
}

// tcpPair returns both ends of a TCP connection.
func tcpPair(t testing.TB) (a, b *Conn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	dialled, err := net.Dial("tcp", ln.Addr().String())
	require.NoError(t, err)
	accepted, err := ln.Accept()
	require.NoError(t, err)
	a, b = New(dialled.(*net.TCPConn)), New(accepted.(*net.TCPConn))
	t.Cleanup(func() { a.Close(); b.Close() })
	return a, b
}

// attach gives both ends a new segment.
func attach(t testing.TB, a, b *Conn) {
	t.Helper()
	made, err := shm.New(shm.Peer{})
	require.NoError(t, err)
	opened, err := shm.Open(shm.Peer{}, made.File())
	require.NoError(t, err)
	made.Sent()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	for _, err := range []error{a.Attach(made, fds[0]), b.Attach(opened, fds[1])} {
		require.True(t, err == nil || a.is(closed) || b.is(closed), "%v", err)
	}
}

func linkedPair(t testing.TB) (a, b *Conn) {
	t.Helper()
	a, b = tcpPair(t)
	attach(t, a, b)
	return a, b
}

// move makes a and b exchange bytes until both directions are in the ring.
func move(t testing.TB, a, b *Conn) {
	t.Helper()
	for range 3 {
		say(t, a, b, "x")
		say(t, b, a, "y")
	}
	for _, c := range []*Conn{a, b} {
		l := c.linked.Load()
		require.NotNil(t, l)
		require.Equal(t, inRing, l.reader.at())
		require.Equal(t, inRing, l.writer.at())
	}
}

func say(t testing.TB, from, to *Conn, what string) {
	t.Helper()
	n, err := from.Write([]byte(what))
	require.NoError(t, err)
	require.Equal(t, len(what), n)
	got := make([]byte, len(what))
	_, err = io.ReadFull(to, got)
	require.NoError(t, err)
	require.Equal(t, what, string(got))
}

// bringHome brings a connection home, for which both ends must do something.
func bringHome(t testing.TB, a, b *Conn) {
	t.Helper()
	for a.Leave(); ; runtime.Gosched() {
		a.Visit()
		b.Visit()
		if a.linked.Load() == nil && b.linked.Load() == nil {
			return
		}
	}
}

// TestMovesAndReturns: a connection moves and comes home again and again; bytes that were not read come home, too.
func TestMovesAndReturns(t *testing.T) {
	a, b := tcpPair(t)
	for range 5 {
		say(t, a, b, "on TCP")
		attach(t, a, b)
		move(t, a, b)
		n, err := a.Write([]byte("unread"))
		require.NoError(t, err)
		require.Equal(t, 6, n)
		bringHome(t, b, a)
		unread, err := unix.IoctlGetInt(fdOf(t, b), unix.SIOCINQ)
		require.NoError(t, err)
		assert.Equal(t, 6, unread)
		got := make([]byte, 6)
		_, err = io.ReadFull(b, got)
		require.NoError(t, err)
		assert.Equal(t, "unread", string(got))
	}
}

func fdOf(t testing.TB, c *Conn) (fd int) {
	t.Helper()
	raw, err := c.tcp.SyscallConn()
	require.NoError(t, err)
	require.NoError(t, raw.Control(func(f uintptr) { fd = int(f) }))
	return fd
}

// restless makes a pair move and come home at random, beside its calls, until stop.
func restless(t testing.TB, a, b *Conn, seed uint64) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		r := rand.New(rand.NewPCG(seed, 0))
		for ctx.Err() == nil {
			if a.linked.Load() == nil && b.linked.Load() == nil && !a.is(closed) && !b.is(closed) {
				attach(t, a, b)
			}
			for range r.IntN(50) {
				runtime.Gosched()
			}
			if r.IntN(2) == 0 {
				a, b = b, a
			}
			a.Leave()
			for ctx.Err() == nil {
				if both := [2]bool{a.Visit(), b.Visit()}; both[0] && both[1] {
					break
				}
				runtime.Gosched()
			}
		}
	})
	return func() { cancel(); wg.Wait() }
}

func TestNettest(t *testing.T) {
	for name, how := range map[string]func(a, b *Conn) func(){
		"plain":    func(a, b *Conn) func() { return func() {} },
		"linked":   func(a, b *Conn) func() { attach(t, a, b); return func() {} },
		"moved":    func(a, b *Conn) func() { attach(t, a, b); move(t, a, b); return func() {} },
		"restless": func(a, b *Conn) func() { return restless(t, a, b, 1) },
	} {
		t.Run(name, func(t *testing.T) {
			nettest.TestConn(t, func() (c1, c2 net.Conn, stop func(), err error) {
				a, b := tcpPair(t)
				end := how(a, b)
				return a, b, func() { end(); a.Close(); b.Close() }, nil
			})
		})
	}
}

// TestRestlessStreams: streams in both directions arrive complete while the connection moves and comes home.
func TestRestlessStreams(t *testing.T) {
	total := 16 << 20
	if testing.Short() {
		total = 2 << 20
	}
	for seed := range uint64(4) {
		a, b := tcpPair(t)
		stop := restless(t, a, b, seed)
		var wg sync.WaitGroup
		for i, ends := range [][2]*Conn{{a, b}, {b, a}} {
			wg.Go(func() {
				r := rand.New(rand.NewPCG(seed, uint64(i)))
				data := pattern(i, 256<<10)
				for left := total; left > 0; {
					at := (total - left) % len(data)
					n, err := ends[0].Write(data[at:min(len(data), at+left, at+1+r.IntN(100<<10))])
					if !assert.NoError(t, err) {
						return
					}
					left -= n
				}
				assert.NoError(t, ends[0].CloseWrite())
			})
			wg.Go(func() {
				r := rand.New(rand.NewPCG(seed, uint64(i+2)))
				data, buf := pattern(i, 256<<10), make([]byte, 64<<10)
				got := 0
				for {
					n, err := ends[1].Read(buf[:1+r.IntN(len(buf))])
					for b := buf[:n]; len(b) > 0; {
						k := min(len(b), len(data)-got%len(data))
						if !assert.True(t, bytes.Equal(b[:k], data[got%len(data):][:k]), "at %d", got) {
							return
						}
						got += k
						b = b[k:]
					}
					if err == io.EOF {
						break
					}
					if !assert.NoError(t, err) {
						return
					}
				}
				assert.Equal(t, total, got)
			})
		}
		wg.Wait()
		stop()
		a.Close()
		b.Close()
	}
}

func pattern(seed, n int) []byte {
	r := rand.New(rand.NewPCG(uint64(seed), 9))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// await waits until something has arrived for c that it has not read.
func await(t testing.TB, c *Conn) {
	t.Helper()
	for {
		if l := c.linked.Load(); l != nil && !l.reader.ring.Empty() {
			return
		}
		if n, err := unix.IoctlGetInt(fdOf(t, c), unix.SIOCINQ); err != nil || n > 0 {
			return
		}
		runtime.Gosched()
	}
}

// TestWriterWaits: a Write larger than the ring waits for the reader, wherever the connection is; a deadline and
// Close end it.
func TestWriterWaits(t *testing.T) {
	for _, moved := range []bool{false, true} {
		a, b := linkedPair(t)
		if moved {
			move(t, a, b)
		}
		var written atomic.Int64
		done := make(chan error)
		go func() {
			n, err := a.Write(make([]byte, 32<<20))
			written.Store(int64(n))
			done <- err
		}()
		await(t, b)
		a.SetWriteDeadline(past)
		assert.Equal(t, "write: i/o timeout", why(<-done))
		a.SetWriteDeadline(time.Time{})
		n := written.Load()
		assert.Less(t, n, int64(32<<20))
		got, err := io.Copy(io.Discard, io.LimitReader(b, n))
		assert.NoError(t, err)
		assert.Equal(t, n, got)
		say(t, a, b, "goes on")
		go func() {
			_, err := a.Write(make([]byte, 32<<20))
			done <- err
		}()
		await(t, b)
		assert.NoError(t, a.Close())
		assert.Equal(t, "write: use of closed network connection", why(<-done))
	}
}

// TestConsentBeforeSend: a reader that consents and falls asleep after the writer has decided to use TCP is told of these
// bytes.
func TestConsentBeforeSend(t *testing.T) {
	a, b := linkedPair(t)
	_, err := a.Write([]byte("0"))
	require.NoError(t, err)
	heard := make(chan string)
	listen := func() {
		buf := make([]byte, 1)
		for range 2 {
			_, err := b.Read(buf)
			assert.NoError(t, err)
			heard <- string(buf)
		}
	}
	onStep = func(name string) {
		if name != "to send" {
			return
		}
		onStep = nil
		go listen()
		assert.Equal(t, "0", <-heard)
		for !b.linked.Load().reader.ring.Sleeps() {
			runtime.Gosched()
		}
	}
	_, err = a.Write([]byte("1"))
	require.NoError(t, err)
	assert.Equal(t, "1", <-heard)
	assert.Equal(t, onTCP, a.linked.Load().writer.at())
}

// TestNoLeaks: what a connection had in a segment is gone when it is home or closed.
func TestNoLeaks(t *testing.T) {
	count := func() int {
		entries, err := os.ReadDir("/proc/self/fd")
		require.NoError(t, err)
		return len(entries)
	}
	a, b := tcpPair(t)
	before := count()
	for range 10 {
		attach(t, a, b)
		move(t, a, b)
		bringHome(t, a, b)
	}
	assert.Equal(t, before, count())
	attach(t, a, b)
	move(t, a, b)
	a.Close()
	b.Close()
	assert.Equal(t, before-2, count())
}

func TestAllocsReadWrite(t *testing.T) {
	if raceEnabled {
		t.Skip("missing: a build without -race, which allocates")
	}
	a, b := linkedPair(t)
	move(t, a, b)
	buf := make([]byte, 64)
	assert.Zero(t, testing.AllocsPerRun(1000, func() {
		a.Write(buf)
		b.Read(buf)
	}))
	due, other := make(chan bool), make([]byte, 64)
	defer close(due)
	go func() {
		for range due {
			a.Write(other)
		}
	}()
	assert.Zero(t, testing.AllocsPerRun(1000, func() { // a Read that sleeps
		due <- true
		b.Read(buf)
	}))
}

// TestReadBesideRecall: bytes that a Read takes from the ring while the direction is recalled are not sent again.
func TestReadBesideRecall(t *testing.T) {
	a, b := linkedPair(t)
	move(t, a, b)
	_, err := a.Write([]byte("0123456789"))
	require.NoError(t, err)
	got := make([]byte, 4)
	onStep = func(name string) {
		if name != "looked" {
			return
		}
		onStep = nil
		reader := &b.linked.Load().reader
		reader.ended = true // this Read has looked before the recall
		_, err := io.ReadFull(b, got)
		assert.NoError(t, err)
		reader.ended = false
		b.Visit()
	}
	a.linked.Load().seg.Leave()
	a.Visit()
	bringHome(t, a, b)
	_, err = a.Write([]byte("more"))
	require.NoError(t, err)
	require.NoError(t, a.CloseWrite())
	rest, err := io.ReadAll(b)
	assert.NoError(t, err)
	assert.Equal(t, "0123456789more", string(got)+string(rest))
}

// TestWritesAheadOfReads: both ends write a megabyte before either reads, as TCP allows, again and again.
func TestWritesAheadOfReads(t *testing.T) {
	a, b := linkedPair(t)
	move(t, a, b)
	for range 3 {
		for _, c := range []*Conn{a, b} {
			n, err := c.Write(make([]byte, 1<<20))
			require.NoError(t, err)
			require.Equal(t, 1<<20, n)
		}
		for _, c := range []*Conn{a, b} {
			n, err := io.ReadFull(c, make([]byte, 1<<20))
			require.NoError(t, err)
			require.Equal(t, 1<<20, n)
		}
	}
}

// TestDeadlineOfAWriteBesideARead: a Write on a full ring ends at its deadline, although a Read without one listens.
func TestDeadlineOfAWriteBesideARead(t *testing.T) {
	a, b := linkedPair(t)
	move(t, a, b)
	reading := make(chan error)
	go func() {
		_, err := a.Read(make([]byte, 1))
		reading <- err
	}()
	for !a.linked.Load().reader.ring.Sleeps() {
		runtime.Gosched()
	}
	require.NoError(t, a.SetWriteDeadline(time.Now().Add(time.Millisecond)))
	_, err := a.Write(make([]byte, 32<<20))
	assert.Equal(t, "write: i/o timeout", why(err))
	require.NoError(t, a.SetWriteDeadline(time.Now().AddDate(8000, 0, 0)))
	assert.False(t, expired(a.writeDeadline.Load()), "a time that no clock reaches")
	a.Close()
	assert.Equal(t, "read: use of closed network connection", why(<-reading))
}

// TestPlainReadBesideALink: a Read that waits on TCP since before there was a link does not keep it from leaving.
func TestPlainReadBesideALink(t *testing.T) {
	a, b := tcpPair(t)
	reading := make(chan error)
	go func() {
		_, err := b.Read(make([]byte, 1))
		reading <- err
	}()
	for b.rmu.TryLock() { // until the Read has it
		b.rmu.Unlock()
		runtime.Gosched()
	}
	attach(t, a, b)
	bringHome(t, a, b)
	assert.Nil(t, b.linked.Load())
	a.Close()
	assert.Equal(t, io.EOF, <-reading)
}

// TestDeadlineWhileInterrupted: a deadline that the program sets while Close or CloseWrite interrupts a Write does not
// let that wait on.
func TestDeadlineWhileInterrupted(t *testing.T) {
	a, b := linkedPair(t)
	done := make(chan error)
	go func() {
		_, err := a.Write(make([]byte, 64<<20))
		done <- err
	}()
	await(t, b)
	resume := a.interruptWrite()
	require.NoError(t, a.SetWriteDeadline(time.Time{}))
	assert.Equal(t, "write: i/o timeout", why(<-done))
	resume()
	assert.Zero(t, a.interrupts)
}

// TestReadGivesUpTheLink: a Read that waits on TCP while its connection comes home does not keep the link in memory, and
// goes on; a deadline that the program sets ends it.
func TestReadGivesUpTheLink(t *testing.T) {
	for name, deadline := range map[string]bool{"goes on": false, "deadline": true} {
		t.Run(name, func(t *testing.T) {
			a, b := linkedPair(t)
			freed := make(chan struct{})
			runtime.AddCleanup(b.linked.Load(), func(struct{}) { close(freed) }, struct{}{})
			result := make(chan error)
			got := make([]byte, 1)
			go func() {
				_, err := b.Read(got)
				result <- err
			}()
			for !b.isInside() {
				runtime.Gosched()
			}
			for !b.Leave() || !a.Leave() {
				runtime.Gosched()
			}
			for waits := true; waits; {
				runtime.GC()
				select {
				case <-freed:
					waits = false
				default:
				}
			}
			if deadline {
				require.NoError(t, b.SetReadDeadline(time.Now().Add(time.Millisecond)))
				require.ErrorIs(t, <-result, os.ErrDeadlineExceeded)
				require.NoError(t, b.SetReadDeadline(time.Time{}))
				say(t, a, b, "x")
				return
			}
			_, err := a.Write([]byte("x"))
			require.NoError(t, err)
			require.NoError(t, <-result)
			assert.Equal(t, "x", string(got))
		})
	}
}

// isInside reports whether a Read of a connection with a link waits on TCP.
func (c *Conn) isInside() bool {
	l := c.linked.Load()
	c.mu.Lock()
	defer c.mu.Unlock()
	return l.reader.inside && l.reader.place.Load()&uint32(lent) != 0
}
