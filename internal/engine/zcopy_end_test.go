package engine

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/rdma"
	"github.com/gosdp/gosdp/wire"
	"github.com/gosdp/gosdp/zcopy"
)

// TestZcopyDeadlines has deadlines pass in the middle of Writes and Reads that
// move without a copy: n is always how many bytes went, and the memory is back.
func TestZcopyDeadlines(t *testing.T) {
	for _, threshold := range zcopyThresholds[:2] {
		t.Run(fmt.Sprint("threshold ", threshold), func(t *testing.T) {
			total := 48 << 20
			if testing.Short() {
				total = 16 << 20
			}
			c, s, cq, sq := counted(t, threshold)
			neverGivesUp(c)
			neverGivesUp(s)
			first := newTalk(t, c, s)
			first.until("a Write that was fetched", streamMax, streamMax, func() bool { return c.Stats().ZCopySent > 0 })
			var calls sync.WaitGroup
			calls.Go(func() {
				r := rand.New(rand.NewPCG(uint64(threshold), 1))
				for off := first.off; off < total; {
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
			for off := first.off; ; {
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
			assert.Equal(t, c.Stats().ZCopySent, s.Stats().ZCopyReceived)
		})
	}
}

// TestNobodyReads: the Write of more than all buffers hold has its deadline, or
// is closed, and says exactly how much the peer can read.
func TestNobodyReads(t *testing.T) {
	size := 64 << 20
	if testing.Short() {
		size = 32 << 20
	}
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
				}, soon, time.Millisecond)
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
	for _, threshold := range []int{1, -1} {
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
			require.NoError(t, c.SetDeadline(time.Now().Add(soon)))
			_, err := writeStream(c, 0, size, 1<<20)
			require.NoError(t, err)
			_, err = readStream(c, 0, size, 1<<20)
			require.NoError(t, err)
			assert.Equal(t, fmt.Sprintf("sent %d got %[1]d", size), p.Report(t))
		})
	}
}

// TestBothWriteForever: what is read ahead for two programs that do not read is
// bounded, and afterwards everything is as it was.
func TestBothWriteForever(t *testing.T) {
	if testing.Short() {
		t.Skip("missing: time, because -short is set; TestReadAheadIsBounded checks the bounds")
	}
	const size = 32 << 20
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
			}, soon, idleTick)
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
				assert.Zero(t, c.promise.ahead)
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
				require.NoError(t, v.end(s))
				assert.ErrorIs(t, await(t, done, soon), v.error)
				sq.backFromRead(t)
				if v.error == net.ErrClosed {
					return
				}
				if v.error == io.EOF {
					_, err := c.Write(streamAt(0, 1000))
					require.NoError(t, err)
					_, err = readStream(s, 0, 1000, 1000)
					assert.NoError(t, err)
					return
				}
				_, err := c.Write(streamAt(0, streamMax)) // for which the peer has no memory
				require.NoError(t, err)
				require.NoError(t, s.SetReadDeadline(time.Now().Add(soon)))
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
		const size = 64 << 20
		c, s, cq, _ := counted(t, 1)
		done := make(chan error, 1)
		go func() {
			_, err := c.Write(make([]byte, size))
			cq.backFromWrite(t)
			done <- err
		}()
		got, err := io.ReadFull(s, make([]byte, 1<<20))
		require.NoError(t, err)
		require.NoError(t, s.CloseRead())
		b := make([]byte, 1<<20)
		for until := time.Now().Add(soon); got < size && time.Now().Before(until); {
			n, err := s.Read(b) // does not wait
			if got += n; err == io.EOF {
				runtime.Gosched()
				continue
			}
			require.NoError(t, err)
		}
		assert.Equal(t, size, got)
		assert.NoError(t, await(t, done, soon))
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
		err = await(t, done, soon)
		assert.True(t, errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE), "%v", err)
	})
}

// TestCallsEndInTheMiddleOfAFill: what is written into a Read's memory ends with the
// Write, or with the Read, and both agree on how much it was. However long the rest
// would have taken, the connection goes on, or ends well.
func TestCallsEndInTheMiddleOfAFill(t *testing.T) {
	const size, after = 16 * fillPart, 3 // of both calls; RDMA Writes before the end
	closed := make(chan error, 2)
	for _, v := range []struct {
		name  string
		end   func(c, s *Conn)
		error error // the Write's
	}{
		{"the Write's deadline", func(c, s *Conn) { c.SetWriteDeadline(time.Now()) }, os.ErrDeadlineExceeded},
		{"the Read's deadline", func(c, s *Conn) {
			s.SetReadDeadline(time.Now())
			until(c, func() bool {
				c.poll.startBackgroundLocked()
				return c.session.Parts().ZSource.Unwanted()
			})
		}, nil},
		{"both Close", func(c, s *Conn) {
			for _, c := range []*Conn{c, s} {
				go func() { closed <- c.Close() }()
				until(c, func() bool { return c.phase.closed() })
			}
		}, net.ErrClosed},
	} {
		t.Run(v.name, func(t *testing.T) {
			c, s, cq, sq := counted(t, 1)
			neverOverdue(c)
			neverGivesUp(c)
			neverGivesUp(s)
			newTalk(t, c, s).untilMode(wire.ModePipelined, 1<<20, 1<<20)
			sent, got := bytes.Repeat(streamAt(0, fillPart), size/fillPart), make([]byte, size)
			filled, done := 0, make(chan struct{})
			go func() {
				defer close(done)
				var err error
				filled, err = s.Read(got)
				sq.backFromRead(t)
				assert.NoError(t, err)
				assert.Equal(t, (after+1)*fillPart, filled)
			}()
			until(c, func() bool { // the Write will find the Read's memory
				c.poll.startBackgroundLocked()
				return c.session.Parts().ZSource.Next(size, false).Step == zcopy.Fill
			})
			_, before := cq.counts()
			cq.onWrite = func(posted int) {
				if posted == before+after {
					v.end(c, s)
				}
			}
			if v.error == nil { // what is left of the Write goes otherwise
				go func() {
					<-done
					s.SetReadDeadline(time.Now().Add(soon))
					_, err := io.ReadFull(s, got[filled:])
					assert.NoError(t, err)
					closed <- nil
				}()
			}
			n, err := c.Write(sent)
			cq.backFromWrite(t)
			assert.ErrorIs(t, err, v.error)
			<-done
			switch v.error {
			case nil:
				<-closed
				assert.Equal(t, size, n)
			case net.ErrClosed:
				<-closed // whose errors tell of the clock
				<-closed
			}
			if v.error != nil {
				assert.Equal(t, (after+1)*fillPart, n)
			}
			assert.True(t, bytes.Equal(sent[:n], got[:n]))
			if v.error != net.ErrClosed {
				require.NoError(t, c.SetWriteDeadline(time.Now().Add(soon)))
				newTalk(t, c, s).once(1<<20, 1<<20)
			}
			for _, c := range []*Conn{c, s} {
				c.mu.Lock()
				assert.Equal(t, healthy, c.health)
				assert.False(t, c.closer.reset)
				c.mu.Unlock()
			}
		})
	}
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
		return exposed == 1 && s.poll.leader == parked && s.session.Parts().ZSink.Advertised() != 0
	}, soon, time.Millisecond)
	return done
}

// TestPeerHasAllBeforeItGoes: a Write of which the peer has taken everything was a
// good one, also if it is told so when it cannot send any more.
func TestPeerHasAllBeforeItGoes(t *testing.T) {
	t.Setenv(thresholdVariable, "1")
	ln, err := engineListen()
	require.NoError(t, err)
	defer ln.Close()
	p, nc := hostilePair(t, ln)
	defer p.qp.Close()
	v := &victim{t: t, hostilePeer: p, c: engineOf(t, nc), write: make(chan error, 1)}
	asksEarly(v.c)
	neverGivesUp(v.c)
	v.writes()
	v.c.mu.Lock()
	v.c.sendFailedLocked(syscall.EPIPE)
	v.c.mu.Unlock()
	p.say(hostileWord(6, v.src.Len-zcopy.Ride))
	assert.NoError(t, <-v.write)
	_, err = v.c.Write([]byte("x"))
	assert.ErrorIs(t, err, syscall.EPIPE)
	nc.Close()
}
