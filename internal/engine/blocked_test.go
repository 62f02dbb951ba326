package engine

import (
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A blockedCall is a Read or a Write of a connection whose peer does nothing until
// it is released, and then what the call waits for.
type blockedCall struct {
	name   string
	op     string
	script string
	set    func(*Conn, time.Time) error
	call   func(*Conn) error
}

var (
	blockedRead = &blockedCall{
		"Read", "read", "wait, write 1, hold", (*Conn).SetReadDeadline,
		func(c *Conn) error {
			_, err := c.Read(make([]byte, 100))
			return err
		},
	}
	blockedWrite = &blockedCall{ // the peer's buffers are all full
		"Write without credit", "write", "wait, read, hold", (*Conn).SetWriteDeadline, writeMuch,
	}
	blockedPost = &blockedCall{ // the socket is, since the peer's library does not read
		"Write without room", "write", "freeze, wait, thaw, read, hold", (*Conn).SetWriteDeadline, writeMuch,
	}
	blockedCalls = []*blockedCall{blockedRead, blockedWrite, blockedPost}
)

// much is more than all buffers on the way hold together.
const much = 32 << 20

// writeMuch writes as many bytes.
func writeMuch(c *Conn) error {
	_, err := writeStream(c, 0, much, 1<<20)
	return err
}

// start has the call block, and returns where its result will be.
func (b *blockedCall) start(t *testing.T, c *Conn) <-chan error {
	t.Helper()
	if b == blockedPost { // the kernel's buffers would hold more than there is credit for
		require.NoError(t, c.SetWriteBuffer(256<<10))
	}
	done := make(chan error, 1)
	go func() { done <- b.call(c) }()
	still := 0
	activity := uint32(0)
	require.Eventually(t, func() bool { // it waits, and nothing moves any more
		c.mu.Lock()
		defer c.mu.Unlock()
		waits := c.poll.cond.Waited() || c.poll.leader == parked
		if b == blockedPost {
			waits = c.poll.inRoom || c.session.Parts().ZSource.Outstanding() > 0
		}
		if still++; !waits || c.poll.activity != activity {
			still, activity = 0, c.poll.activity
		}
		return still > 20
	}, soon, time.Millisecond)
	return done
}

func TestDeadlines(t *testing.T) {
	t.Parallel() // it waits
	p := startPeer(t)
	for _, call := range blockedCalls {
		held := "hold"
		if call == blockedPost {
			held = "freeze, hold"
		}
		t.Run(call.name, func(t *testing.T) {
			t.Run("in the past", func(t *testing.T) {
				c := p.perform(t, "write 1, report, hold")
				assert.Equal(t, "sent 1 got 0", p.Report(t))
				require.NoError(t, call.set(c, time.Now().Add(-time.Second)))
				for range 2 { // though there is something to read, and room to write
					checkError(t, call.call(c), call.op, os.ErrDeadlineExceeded)
				}
			})
			t.Run("moved to the past while blocked", func(t *testing.T) {
				c := p.held(t, held)
				done := call.start(t, c)
				require.NoError(t, call.set(c, time.Unix(1, 0)))
				checkError(t, await(t, done, soon), call.op, os.ErrDeadlineExceeded)
			})
			t.Run("moved earlier while blocked", func(t *testing.T) {
				c := p.held(t, held)
				require.NoError(t, call.set(c, time.Now().Add(time.Hour)))
				done := call.start(t, c)
				at := time.Now().Add(100 * time.Millisecond)
				require.NoError(t, call.set(c, at))
				checkError(t, await(t, done, soon), call.op, os.ErrDeadlineExceeded)
				assert.False(t, time.Now().Before(at))
			})
			t.Run("passed and moved on", func(t *testing.T) {
				c := p.perform(t, "echo")
				require.NoError(t, call.set(c, time.Now().Add(10*time.Millisecond)))
				require.Eventually(t, func() bool {
					c.mu.Lock()
					defer c.mu.Unlock()
					return c.read.passed() || c.write.passed()
				}, soon, time.Millisecond)
				checkError(t, call.call(c), call.op, os.ErrDeadlineExceeded)
				require.NoError(t, call.set(c, time.Now().Add(soon)))
				checkEcho(t, c)
			})
		})
	}
}

// TestDeadlinesMoveWhileACallWaits for data or for credit: the last one counts.
func TestDeadlinesMoveWhileACallWaits(t *testing.T) {
	calls := map[string]struct {
		set  func(*Conn, time.Time) error
		call func(*Conn) error
	}{
		"Read": {(*Conn).SetReadDeadline, func(c *Conn) error { _, err := c.Read(make([]byte, 1)); return err }},
		"Write": {(*Conn).SetWriteDeadline, func(c *Conn) error {
			_, err := c.Write(make([]byte, 1<<20))
			return err
		}},
	}
	for name, v := range calls {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := memConn(t, newMemPair(t, 8), true, -1, 8)
				defer c.Close()
				for _, moves := range [][]time.Duration{{time.Hour, time.Second}, {time.Second, time.Hour}, {-time.Second}} {
					require.NoError(t, v.set(c, time.Time{}))
					done := make(chan error, 1)
					go func() { done <- v.call(c) }()
					synctest.Wait()
					begin := time.Now()
					for _, d := range moves {
						require.NoError(t, v.set(c, begin.Add(d)))
					}
					assert.ErrorIs(t, <-done, os.ErrDeadlineExceeded)
					assert.Equal(t, max(0, moves[len(moves)-1]), time.Since(begin))
				}
				require.NoError(t, v.set(c, time.Time{}))
				done := make(chan error, 1)
				go func() { done <- v.call(c) }()
				synctest.Wait()
				require.NoError(t, v.set(c, time.Now().Add(time.Second)))
				require.NoError(t, v.set(c, time.Time{}))
				time.Sleep(time.Hour)
				assert.Empty(t, done, "the deadline was cleared")
				require.NoError(t, c.SetLinger(0))
				require.NoError(t, c.Close())
				assert.ErrorIs(t, <-done, net.ErrClosed)
			})
		})
	}
}

// TestDeadlineByTheMonotonicClock, whatever time the program gives: a machine's other clock may be set
// back, and a deadline that follows it passes late.
func TestDeadlineByTheMonotonicClock(t *testing.T) {
	c, _ := pair(t)
	at := time.Now().Add(time.Hour)
	require.NoError(t, c.SetReadDeadline(at.Round(0)))
	c.mu.Lock()
	assert.NotEqual(t, c.read.at.Round(0), c.read.at)
	assert.WithinDuration(t, at, c.read.at, time.Minute)
	c.mu.Unlock()
	for name, v := range map[string]struct {
		at              time.Time
		pending, passed bool
	}{
		"none":           {},
		"long ago":       {time.Time{}.Add(1), true, true},
		"1970":           {time.Unix(0, 0), true, true},
		"now":            {time.Now(), true, true},
		"after 34 years": {time.Now().Add(300_000 * time.Hour), true, false},
		"the last time":  {time.Now().Add(math.MaxInt64), true, false},
		"the year 36812": {time.Unix(1<<40, 0), true, false},
	} {
		require.NoError(t, c.SetReadDeadline(v.at), name)
		c.mu.Lock()
		assert.Equal(t, v.pending, !c.read.at.IsZero(), name)
		assert.Equal(t, v.passed, c.read.passed(), name)
		c.mu.Unlock()
	}
}

// TestDeadlineOfOneDirectionLeavesTheOther alone, though both wait in the same
// place.
func TestDeadlineOfOneDirectionLeavesTheOther(t *testing.T) {
	p := startPeer(t)
	c := p.perform(t, fmt.Sprint("wait, read ", much, ", write 1, hold"))
	read := blockedRead.start(t, c)
	write := blockedWrite.start(t, c)
	require.NoError(t, c.SetReadDeadline(time.Unix(1, 0)))
	checkError(t, await(t, read, soon), "read", os.ErrDeadlineExceeded)
	require.NoError(t, c.SetReadDeadline(time.Time{}))
	p.release(t)
	require.NoError(t, await(t, write, soon))
	assert.NoError(t, blockedRead.call(c))
}

func TestHalfClose(t *testing.T) {
	const size = 1 << 20
	p := startPeer(t)
	t.Run("ours, and we still read", func(t *testing.T) {
		c := p.perform(t, fmt.Sprint("read, report, write ", size, ", report"))
		_, err := writeStream(c, 0, size, size)
		require.NoError(t, err)
		require.NoError(t, c.CloseWrite())
		assert.Equal(t, fmt.Sprint("sent 0 got ", size), p.Report(t))
		n, err := readStream(c, 0, forever, 10_000)
		assert.Equal(t, io.EOF, err)
		assert.Equal(t, size, n)
		assert.Equal(t, fmt.Sprintf("sent %d got %[1]d", size), p.Report(t))
		_, err = c.Write([]byte{1})
		checkError(t, err, "write", syscall.EPIPE)
		assert.NoError(t, c.Close())
	})
	t.Run("the peer's, and we still write", func(t *testing.T) {
		c := p.perform(t, fmt.Sprint("write ", size, ", closewrite, read, report"))
		n, err := readStream(c, 0, forever, 10_000)
		require.Equal(t, io.EOF, err)
		require.Equal(t, size, n)
		_, err = writeStream(c, 0, size, 1000)
		require.NoError(t, err)
		_, err = c.Read(make([]byte, 1))
		assert.Equal(t, io.EOF, err, "the end stays")
		require.NoError(t, c.CloseWrite())
		assert.Equal(t, fmt.Sprintf("sent %d got %[1]d", size), p.Report(t))
		assert.NoError(t, c.Close())
	})
	t.Run("CloseRead, and we still write", func(t *testing.T) {
		c := p.perform(t, "read, report")
		require.NoError(t, c.CloseRead())
		_, err := c.Read(make([]byte, 1))
		assert.Equal(t, io.EOF, err)
		_, err = writeStream(c, 0, size, size)
		require.NoError(t, err)
		require.NoError(t, c.CloseWrite())
		assert.Equal(t, fmt.Sprint("sent 0 got ", size), p.Report(t))
	})
	t.Run("CloseRead ends a blocked Read", func(t *testing.T) {
		c := p.perform(t, "hold")
		done := blockedRead.start(t, c)
		require.NoError(t, c.CloseRead())
		assert.Equal(t, io.EOF, await(t, done, soon))
	})
	t.Run("CloseWrite ends a blocked Write", func(t *testing.T) {
		for _, call := range []*blockedCall{blockedWrite, blockedPost} {
			c := p.perform(t, strings.Replace(call.script, "hold", "report", 1))
			advertises := c.session.Parts().ZSource.Wants(1 << 20)
			done := call.start(t, c)
			closed := make(chan error, 1)
			go func() { closed <- c.CloseWrite() }()
			if call == blockedPost && advertises {
				// The peer's library has to let go of what was advertised, and is frozen.
				checkError(t, await(t, done, soon), "write", syscall.EPIPE)
				checkError(t, await(t, closed, soon), "close", syscall.ECONNABORTED)
				p.release(t)
				continue
			}
			checkError(t, await(t, done, soon), "write", syscall.EPIPE)
			p.release(t)
			require.NoError(t, await(t, closed, soon))
			assert.Regexp(t, `^sent 0 got \d+$`, p.Report(t))
		}
	})
}

// TestFloodBothWays has two programs write as much as they can to each other
// while both read.
func TestFloodBothWays(t *testing.T) {
	d := 2 * time.Second
	if raceEnabled {
		d /= 4
	}
	if s := os.Getenv("GOSDP_TEST_FLOOD"); s != "" {
		var err error
		d, err = time.ParseDuration(s)
		require.NoError(t, err)
	}
	p := startPeer(t)
	c := p.perform(t, fmt.Sprint("flood ", d.Milliseconds(), ", report"))
	require.NoError(t, c.SetDeadline(time.Now().Add(d+soon)))
	sent, got, err := flood(c, d)
	require.NoError(t, err)
	assert.Equal(t, fmt.Sprint("sent ", got, " got ", sent), p.Report(t))
	t.Logf("%v: %d MB there, %d MB back", d, sent>>20, got>>20)
}
