package sdp

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/rdma"
)

// TestZcopyDeadlines has deadlines pass in the middle of Writes and Reads that
// move without a copy: n is always how many bytes went, and the memory is back.
func TestZcopyDeadlines(t *testing.T) {
	for _, threshold := range zcopyThresholds[:2] {
		t.Run(fmt.Sprint("threshold ", threshold), func(t *testing.T) {
			const total = 48 << 20
			c, s, cq, sq := counted(t, threshold)
			var calls sync.WaitGroup
			calls.Go(func() {
				r := rand.New(rand.NewPCG(uint64(threshold), 1))
				for off := 0; off < total; {
					c.SetWriteDeadline(time.Now().Add(time.Duration(r.IntN(3000)) * time.Microsecond))
					n, err := c.Write(streamAt(off, min(streamMax, total-off)))
					cq.backFromWrite(t)
					if off += n; err != nil && !assert.ErrorIs(t, err, os.ErrDeadlineExceeded) {
						return
					}
				}
				c.SetWriteDeadline(time.Now().Add(time.Minute))
				assert.NoError(t, c.CloseWrite())
			})
			r := rand.New(rand.NewPCG(uint64(threshold), 2))
			for off := 0; ; {
				s.SetReadDeadline(time.Now().Add(time.Duration(r.IntN(3000)) * time.Microsecond))
				b := make([]byte, 1+r.IntN(streamMax))
				n, err := s.Read(b)
				sq.backFromRead(t)
				require.NoError(t, checkStream(off, b[:n]))
				if off += n; err == io.EOF {
					require.Equal(t, total, off)
					break
				}
				if err != nil {
					require.ErrorIs(t, err, os.ErrDeadlineExceeded)
				}
			}
			calls.Wait()
			assert.NotZero(t, c.Stats().ZcopySent)
			assert.NotZero(t, c.Stats().Cancels+s.Stats().Cancels)
			assert.Equal(t, c.Stats().ZcopySent, s.Stats().ZcopyReceived)
		})
	}
}

// TestNobodyReads: the Write of more than all buffers hold has its deadline, or
// is closed, and says exactly how much the peer can read.
func TestNobodyReads(t *testing.T) {
	const size = 64 << 20
	big := random(size)
	for _, v := range []struct {
		name  string
		end   func(c *Conn) error
		error error
		read  error // what the peer's Read ends with
	}{
		{"deadline", func(c *Conn) error { return c.SetWriteDeadline(time.Now()) }, os.ErrDeadlineExceeded, io.EOF},
		{"CloseWrite", (*Conn).CloseWrite, syscall.EPIPE, io.EOF},
		{"Close", (*Conn).Close, net.ErrClosed, io.EOF},
	} {
		for _, threshold := range []int{1, -1} {
			t.Run(fmt.Sprintf("%s, threshold %d", v.name, threshold), func(t *testing.T) {
				c, s, cq, _ := counted(t, threshold)
				type result struct {
					n   int
					err error
				}
				done := make(chan result, 1)
				go func() {
					n, err := c.Write(big)
					cq.backFromWrite(t)
					done <- result{n, err}
				}()
				require.Eventually(t, func() bool { // it has no credit any more
					return c.Stats().CreditStalls > 0
				}, 10*time.Second, time.Millisecond)
				ended := make(chan error, 1)
				go func() { ended <- v.end(c) }()
				r := <-done
				assert.ErrorIs(t, r.err, v.error)
				assert.Less(t, r.n, size)
				assert.Greater(t, r.n, 1<<20)
				if v.error == os.ErrDeadlineExceeded {
					require.NoError(t, <-ended)
					go func() { ended <- c.CloseWrite() }()
				}
				got, err := io.ReadAll(s)
				assert.NoError(t, err)
				require.NoError(t, <-ended)
				assert.Equal(t, r.n, len(got))
				assert.Equal(t, sha256.Sum256(big[:r.n]), sha256.Sum256(got))
			})
		}
	}
}

// TestBothWriteLong has two programs write 8 MB before they read any.
func TestBothWriteLong(t *testing.T) {
	const size = 8 << 20
	for _, threshold := range []int{1, 30_000, -1} {
		t.Run(fmt.Sprint("threshold ", threshold), func(t *testing.T) {
			c, s := zcopyPair(t, threshold)
			b := random(size)
			var calls sync.WaitGroup
			for _, c := range []*Conn{c, s} {
				calls.Go(func() {
					n, err := c.Write(b)
					assert.NoError(t, err)
					assert.Equal(t, size, n)
					got := make([]byte, size)
					n, err = io.ReadFull(c, got)
					assert.NoError(t, err)
					assert.Equal(t, sha256.Sum256(b), sha256.Sum256(got[:n]))
				})
			}
			calls.Wait()
		})
	}
}

// TestBothWriteLongInTwoProcesses, many Writes each.
func TestBothWriteLongInTwoProcesses(t *testing.T) {
	const size = 8 << 20
	for _, threshold := range []int{1, -1} {
		t.Run(fmt.Sprint("threshold ", threshold), func(t *testing.T) {
			t.Setenv(thresholdVariable, strconv.Itoa(threshold))
			p := startPeer(t)
			c := p.perform(t, fmt.Sprintf("write %d, read %[1]d, report", size))
			require.NoError(t, c.SetDeadline(time.Now().Add(20*time.Second)))
			_, err := writeStream(c, 0, size, 1<<20)
			require.NoError(t, err)
			_, err = readStream(c, 0, size, 1<<20)
			require.NoError(t, err)
			assert.Equal(t, fmt.Sprintf("sent %d got %[1]d", size), p.report(t))
		})
	}
}

// TestBothWriteForever: what is read ahead for two programs that do not read is
// bounded, and afterwards everything is as it was.
func TestBothWriteForever(t *testing.T) {
	const size = 64 << 20
	big := random(size)
	for _, threshold := range []int{1, -1} {
		t.Run(fmt.Sprint("threshold ", threshold), func(t *testing.T) {
			c, s := zcopyPair(t, threshold)
			ends := []*Conn{c, s}
			var sent [2]int
			var calls sync.WaitGroup
			for i, c := range ends {
				calls.Go(func() {
					var err error
					sent[i], err = c.Write(big)
					assert.ErrorIs(t, err, os.ErrDeadlineExceeded)
				})
			}
			still, last := 0, 0
			require.Eventually(t, func() bool { // nothing moves any more
				now := c.Stats().Unread + s.Stats().Unread
				if still++; now != last {
					still, last = 0, now
				}
				return still > 20
			}, 10*time.Second, janitorTick)
			for _, c := range ends {
				require.NoError(t, c.SetWriteDeadline(time.Now()))
			}
			calls.Wait()
			for i, c := range ends {
				assert.Greater(t, sent[i], 12<<20)
				assert.Less(t, sent[i], 2*recvWindow+aheadBuffers*grownSize)
				require.NoError(t, c.CloseWrite())
			}
			for i, c := range ends {
				got, err := io.ReadAll(c)
				require.NoError(t, err)
				assert.Equal(t, sent[1-i], len(got))
				assert.Equal(t, sha256.Sum256(big[:sent[1-i]]), sha256.Sum256(got))
				c.mu.Lock()
				assert.Zero(t, c.ahead)
				c.mu.Unlock()
			}
		})
	}
}

// TestCloseInTheMiddle ends calls whose memory is given away.
func TestCloseInTheMiddle(t *testing.T) {
	t.Run("Read", func(t *testing.T) {
		for _, v := range []struct {
			name  string
			end   func(c *Conn) error
			error error
		}{
			{"Close", (*Conn).Close, net.ErrClosed},
			{"CloseRead", (*Conn).CloseRead, io.EOF},
			{"deadline", func(c *Conn) error { return c.SetReadDeadline(time.Now()) }, os.ErrDeadlineExceeded},
		} {
			t.Run(v.name, func(t *testing.T) {
				c, s, _, sq := counted(t, 1)
				newTalk(t, c, s).pipelined()
				done := advertisedRead(t, s, sq)
				start := time.Now()
				require.NoError(t, v.end(s))
				assert.ErrorIs(t, await(t, done, soon), v.error)
				assert.Less(t, time.Since(start), soon)
				sq.backFromRead(t)
				if v.error == net.ErrClosed {
					return
				}
				n, err := c.Write(streamAt(0, streamMax)) // which nobody has memory for
				if v.error == io.EOF {
					assert.NoError(t, err)
					assert.Equal(t, streamMax, n)
					return
				}
				require.NoError(t, err)
				require.NoError(t, s.SetReadDeadline(time.Now().Add(10*time.Second)))
				_, err = readStream(s, 0, streamMax, 100_000)
				assert.NoError(t, err)
			})
		}
	})
	t.Run("the peer's, of a Read", func(t *testing.T) {
		for name, end := range map[string]func(c *Conn) error{"Close": (*Conn).Close, "CloseWrite": (*Conn).CloseWrite} {
			t.Run(name, func(t *testing.T) {
				c, s, _, sq := counted(t, 1)
				newTalk(t, c, s).pipelined()
				done := advertisedRead(t, s, sq)
				require.NoError(t, end(c))
				assert.Equal(t, io.EOF, await(t, done, soon))
				sq.backFromRead(t)
			})
		}
	})
	t.Run("the peer's CloseRead, of a Write", func(t *testing.T) {
		c, s, cq, _ := counted(t, 1)
		done := make(chan error, 1)
		go func() {
			_, err := c.Write(make([]byte, 64<<20))
			cq.backFromWrite(t)
			done <- err
		}()
		_, err := io.ReadFull(s, make([]byte, 1<<20))
		require.NoError(t, err)
		require.NoError(t, s.CloseRead())
		assert.NoError(t, await(t, done, 10*time.Second))
	})
	t.Run("the peer's Close, of a Write", func(t *testing.T) {
		c, s, cq, _ := counted(t, 1)
		done := make(chan error, 1)
		go func() {
			_, err := c.Write(make([]byte, 256<<20))
			cq.backFromWrite(t)
			done <- err
		}()
		_, err := io.ReadFull(s, make([]byte, 4<<20))
		require.NoError(t, err)
		s.Close()
		err = await(t, done, 10*time.Second)
		assert.True(t, errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE), "%v", err)
	})
}

// advertisedRead has a Read wait whose memory the peer may fill.
func advertisedRead(t *testing.T, s *Conn, sq *countedPair) <-chan error {
	t.Helper()
	done := make(chan error, 1)
	go func() {
		n, err := s.Read(make([]byte, 1<<20))
		assert.Zero(t, n)
		done <- err
	}()
	require.Eventually(t, func() bool {
		exposed, _ := sq.given(rdma.RemoteWrite, rdma.OpRead)
		s.mu.Lock()
		defer s.mu.Unlock()
		return exposed == 1 && s.parked && s.zsink.Advertised() != 0
	}, 10*time.Second, time.Millisecond)
	return done
}

// A frozenCall is a call that a peer's process, stopped at the worst moment,
// keeps from having its memory back.
type frozenCall struct {
	name   string
	op     string
	script string
	// begin brings the connection to that moment and stops the process; not ok: it
	// was missed.
	begin func(t *testing.T, p *process, c *Conn) bool
	set   func(*Conn, time.Time) error
	call  func(*Conn) (int, error)
	given func(*Conn) bool // the peer has memory of the call's, or could have
}

var frozenCalls = []frozenCall{
	{
		"SrcAvail", "write", "hold",
		func(t *testing.T, p *process, c *Conn) bool {
			p.stop(t)
			return true
		},
		(*Conn).SetWriteDeadline,
		func(c *Conn) (int, error) { return c.Write(streamAt(0, 1<<20)) },
		func(c *Conn) bool { return c.zsource.Outstanding() > 0 },
	},
	{
		"RDMA Read", "read", "write 262144, hold",
		func(t *testing.T, p *process, c *Conn) bool {
			b := make([]byte, 64) // what rides along, and nothing of the rest
			_, err := io.ReadFull(c, b)
			require.NoError(t, err)
			p.stop(t)
			c.mu.Lock()
			defer c.mu.Unlock()
			return c.zsink.Suits(256 << 10)
		},
		(*Conn).SetReadDeadline,
		func(c *Conn) (int, error) { return c.Read(make([]byte, 256<<10)) },
		func(c *Conn) bool { return c.moves.reads > 0 },
	},
	{
		"SinkAvail", "read", "write 8388608, report, hold",
		func(t *testing.T, p *process, c *Conn) bool {
			b := make([]byte, streamMax)
			for off := 0; off < 8<<20; {
				n, err := io.ReadFull(c, b)
				require.NoError(t, err)
				off += n
			}
			require.Equal(t, "sent 8388608 got 0", p.report(t))
			p.stop(t)
			c.mu.Lock()
			defer c.mu.Unlock()
			return c.zsink.MayOffer(streamMax, c.sink.Size())
		},
		(*Conn).SetReadDeadline,
		func(c *Conn) (int, error) { return c.Read(make([]byte, streamMax)) },
		func(c *Conn) bool { return c.zsink.Advertised() != 0 },
	},
}

// stop freezes the process, and waits until every thread of it is.
func (p *process) stop(t *testing.T) {
	t.Helper()
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGSTOP))
	if runtime.GOOS != "linux" {
		return // and elsewhere it takes no time to speak of
	}
	running := regexp.MustCompile(`(?m)^State:\s+[^Tt]`)
	require.Eventually(t, func() bool {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", p.cmd.Process.Pid))
		require.NoError(t, err)
		for _, thread := range threads {
			if status, err := os.ReadFile(thread); err == nil && running.Match(status) {
				return false
			}
		}
		return true
	}, 5*time.Second, 100*time.Microsecond)
}

// start has the call give its memory away to a peer that is stopped, and returns
// where its result will be. A moment that was missed it tries again.
func (f *frozenCall) start(t *testing.T, deadline time.Duration) (*process, *Conn, <-chan error) {
	t.Helper()
	for range 20 {
		p := startPeer(t)
		c := p.perform(t, f.script)
		if !f.begin(t, p, c) {
			p.kill()
			c.Close()
			continue
		}
		if deadline > 0 {
			require.NoError(t, f.set(c, time.Now().Add(deadline)))
		}
		done := make(chan error, 1)
		go func() {
			_, err := f.call(c)
			done <- err
		}()
		if f.awaitGiven(c) {
			return p, c, done
		}
		p.kill() // what was on its way has changed the course
		<-done
		c.Close()
	}
	require.Fail(t, "the moment was always missed")
	return nil, nil, nil
}

// awaitGiven waits until the peer has memory of the call's.
func (f *frozenCall) awaitGiven(c *Conn) bool {
	for end := time.Now().Add(soon); time.Now().Before(end); time.Sleep(100 * time.Microsecond) {
		c.mu.Lock()
		given := f.given(c)
		c.mu.Unlock()
		if given {
			return true
		}
	}
	return false
}

// TestPeerStopped: a peer that does not let go of memory costs the connection,
// half a second after the deadline.
func TestPeerStopped(t *testing.T) {
	t.Setenv(thresholdVariable, "1")
	for _, f := range frozenCalls {
		t.Run(f.name, func(t *testing.T) {
			const deadline = 200 * time.Millisecond
			start := time.Now()
			_, c, done := f.start(t, deadline)
			checkError(t, await(t, done, deadline+answerTime+soon), f.op, os.ErrDeadlineExceeded)
			assert.GreaterOrEqual(t, time.Since(start), deadline)
			require.NoError(t, c.SetDeadline(time.Time{}))
			for range 2 {
				_, err := c.Write([]byte{1})
				checkError(t, err, "write", syscall.ECONNABORTED)
				_, err = c.Read(make([]byte, 1))
				checkError(t, err, "read", syscall.ECONNABORTED)
			}
			before := time.Now()
			assert.NoError(t, c.Close())
			assert.Less(t, time.Since(before), soon)
		})
		t.Run(f.name+", and goes on", func(t *testing.T) {
			p, c, done := f.start(t, 100*time.Millisecond)
			time.Sleep(200 * time.Millisecond) // the deadline is over, and not yet the time to answer
			require.NoError(t, p.cmd.Process.Signal(syscall.SIGCONT))
			err := await(t, done, answerTime+soon)
			if err != nil { // what was let go of may have come
				checkError(t, err, f.op, os.ErrDeadlineExceeded)
			}
			c.mu.Lock()
			defer c.mu.Unlock()
			assert.NoError(t, c.sendErr, "the connection has gone on")
			assert.NoError(t, c.recvErr)
		})
		t.Run(f.name+", and is killed", func(t *testing.T) {
			p, c, done := f.start(t, 0)
			p.kill()
			checkError(t, await(t, done, soon), f.op, syscall.ECONNRESET, syscall.EPIPE)
			_, err := c.Read(make([]byte, 1))
			checkError(t, err, "read", syscall.ECONNRESET)
		})
		t.Run(f.name+", and we close", func(t *testing.T) {
			_, c, done := f.start(t, 0)
			closed := make(chan error, 1)
			go func() { closed <- c.Close() }()
			checkError(t, await(t, done, answerTime+soon), f.op, net.ErrClosed)
			await(t, closed, closeTime+soon)
		})
	}
}

// TestZcopyPeerKilled in the middle of a stream that is not copied.
func TestZcopyPeerKilled(t *testing.T) {
	t.Setenv(thresholdVariable, "1")
	t.Run("while it writes", func(t *testing.T) {
		p := startPeer(t)
		c := p.perform(t, "write")
		n, err := readStream(c, 0, 50<<20, 1<<20)
		require.NoError(t, err)
		assert.NotZero(t, c.Stats().ZcopyReceived)
		done := make(chan error, 1)
		go func() {
			_, err := readStream(c, n, forever, 1<<20)
			done <- err
		}()
		p.kill()
		checkError(t, await(t, done, soon), "read", syscall.ECONNRESET)
	})
	t.Run("while it reads", func(t *testing.T) {
		p := startPeer(t)
		c := p.perform(t, "read 50000000, report, read")
		done := make(chan error, 1)
		go func() {
			_, err := writeStream(c, 0, forever, 1<<20)
			done <- err
		}()
		require.Equal(t, "sent 0 got 50000000", p.report(t))
		assert.NotZero(t, c.Stats().ZcopySent)
		p.kill()
		checkError(t, await(t, done, soon), "write", syscall.ECONNRESET, syscall.EPIPE)
	})
}
