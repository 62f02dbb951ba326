//go:build !windows

package engine

import (
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A frozenCall is a call that a peer's process, stopped at the worst moment,
// keeps from having its memory back.
type frozenCall struct {
	name   string
	op     string
	script string
	begin  func(t *testing.T, p *process, c *Conn) // brings the connection to that moment
	set    func(*Conn, time.Time) error
	call   func(*Conn) (int, error)
	given  func(*Conn) bool // the peer has memory of the call's, or could have
}

var frozenCalls = []frozenCall{
	{
		"SrcAvail", "write", "hold",
		func(*testing.T, *process, *Conn) {},
		(*Conn).SetWriteDeadline,
		func(c *Conn) (int, error) { return c.Write(streamAt(0, 1<<20)) },
		func(c *Conn) bool { return c.session.Parts().ZSource.Outstanding() > 0 },
	},
	{
		"RDMA Read", "read", "patient, write 262144, hold",
		func(t *testing.T, p *process, c *Conn) {
			b := make([]byte, 64) // what rides along, and nothing of the rest
			_, err := io.ReadFull(c, b)
			require.NoError(t, err)
		},
		(*Conn).SetReadDeadline,
		func(c *Conn) (int, error) { return c.Read(make([]byte, 256<<10)) },
		func(c *Conn) bool { return c.zcopy.reads > 0 },
	},
	{
		"SinkAvail", "read", fmt.Sprint("patient, pull ", streamMax),
		func(t *testing.T, p *process, c *Conn) {
			b := make([]byte, streamMax)
			for countsIn(c).Adverts == 0 { // a Read waits for each Write
				read := make(chan error, 1)
				go func() {
					_, err := io.ReadFull(c, b)
					read <- err
				}()
				readWaits(c)
				_, err := c.Write([]byte{1})
				require.NoError(t, err)
				require.NoError(t, await(t, read, soon))
			}
		},
		(*Conn).SetReadDeadline,
		func(c *Conn) (int, error) { return c.Read(make([]byte, streamMax)) },
		func(c *Conn) bool { return c.session.Parts().ZSink.Advertised() != 0 },
	},
}

// start has the call give its memory away to a peer that is stopped, and returns
// where its result will be. prepare has the connection first.
func (f *frozenCall) start(t *testing.T, prepare ...func(*Conn)) (*process, *Conn, <-chan error) {
	t.Helper()
	p := startPeer(t)
	c := p.perform(t, f.script)
	for _, with := range prepare {
		with(c)
	}
	f.begin(t, p, c)
	p.Stop(t)
	done := make(chan error, 1)
	go func() {
		_, err := f.call(c)
		done <- err
	}()
	require.Eventually(t, func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return f.given(c)
	}, soon, 100*time.Microsecond)
	return p, c, done
}

// TestPeerStopped: a peer that does not let go of memory costs the connection,
// half a second after the deadline.
func TestPeerStopped(t *testing.T) {
	t.Setenv(thresholdVariable, "1")
	for _, f := range frozenCalls {
		t.Run(f.name, func(t *testing.T) {
			_, c, done := f.start(t)
			require.NoError(t, f.set(c, time.Now()))
			checkError(t, await(t, done, soon), f.op, os.ErrDeadlineExceeded)
			require.NoError(t, c.SetDeadline(time.Time{}))
			for range 2 {
				_, err := c.Write([]byte{1})
				checkError(t, err, "write", syscall.ECONNABORTED)
				_, err = c.Read(make([]byte, 1))
				checkError(t, err, "read", syscall.ECONNABORTED)
			}
			assert.NoError(t, c.Close())
		})
		t.Run(f.name+", and goes on", func(t *testing.T) {
			p, c, done := f.start(t, neverGivesUp)
			require.NoError(t, f.set(c, time.Now()))
			require.NoError(t, p.Cmd.Process.Signal(syscall.SIGCONT))
			err := await(t, done, soon)
			if err != nil { // what was let go of may have come
				checkError(t, err, f.op, os.ErrDeadlineExceeded)
			}
			c.mu.Lock()
			defer c.mu.Unlock()
			assert.NoError(t, c.sendErr, "the connection has gone on")
			assert.NoError(t, c.recvErr)
		})
		t.Run(f.name+", and is killed", func(t *testing.T) {
			p, c, done := f.start(t)
			p.Kill()
			if err := await(t, done, soon); f.op == "read" {
				checkDeath(t, err)
			} else {
				checkError(t, err, f.op, syscall.ECONNRESET, syscall.EPIPE)
			}
			_, err := c.Read(make([]byte, 1))
			checkDeath(t, err)
		})
		t.Run(f.name+", and we close", func(t *testing.T) {
			_, c, done := f.start(t)
			closed := make(chan error, 1)
			go func() { closed <- c.Close() }()
			checkError(t, await(t, done, soon), f.op, net.ErrClosed)
			await(t, closed, soon)
		})
	}
}

// TestZcopyPeerKilled in the middle of a stream that is not copied.
func TestZcopyPeerKilled(t *testing.T) {
	t.Setenv(thresholdVariable, "1")
	t.Run("while it writes", func(t *testing.T) {
		p := startPeer(t)
		c := p.perform(t, "write")
		n := 0
		for end := time.Now().Add(soon); c.Stats().ZCopyReceived == 0 && time.Now().Before(end); {
			var err error
			n, err = readStream(c, n, n+50<<20, 1<<20)
			require.NoError(t, err)
		}
		require.NotZero(t, c.Stats().ZCopyReceived)
		done := make(chan error, 1)
		go func() {
			_, err := readStream(c, n, forever, 1<<20)
			done <- err
		}()
		p.Kill()
		checkDeath(t, await(t, done, soon))
	})
	t.Run("while it reads", func(t *testing.T) {
		p := startPeer(t)
		c := p.perform(t, "read 50000000, report, read")
		done := make(chan error, 1)
		go func() {
			_, err := writeStream(c, 0, forever, 1<<20)
			done <- err
		}()
		require.Equal(t, "sent 0 got 50000000", p.Report(t))
		require.Eventually(t, func() bool { return c.Stats().ZCopySent > 0 }, soon, time.Millisecond)
		p.Kill()
		checkError(t, await(t, done, soon), "write", syscall.ECONNRESET, syscall.EPIPE)
	})
}
