package engine

import (
	"errors"
	"io"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/sdp/stats"
)

// TestNothingCarriesNoSinkAvail: a Write whose last bytes are with the device
// looks in again when that has room, and has nothing then for a SinkAvail to ride
// on. What is no payload must not count as payload.
func TestNothingCarriesNoSinkAvail(t *testing.T) {
	c, s, _, _ := counted(t, 1)
	newTalk(t, c, s).pipelined()
	s.mu.Lock()
	require.True(t, s.session.Parts().ZSink.MayOffer(1<<20, s.session.BufferSize()))
	s.session.Parts().ZSink.Offer(1, 0, 1<<20)
	s.mu.Unlock()
	before := s.Stats()
	o := newBatch()
	defer freeBatch(o)
	n, err := s.out.post(o, nil)
	require.NoError(t, err)
	assert.Zero(t, n)
	after := s.Stats()
	assert.Equal(t, before.BcopySent, after.BcopySent)
	assert.Equal(t, before.ControlSent+1, after.ControlSent, "the SinkAvail has gone alone")
}

// TestReadWhenNothingCanBeSent: a Read that could fetch waits for what comes, as
// the sending half has ended and the receiving half goes on.
func TestReadWhenNothingCanBeSent(t *testing.T) {
	c, s, _, sq := counted(t, 1)
	neverOverdue(c)
	done := make(chan error, 1)
	go func() {
		_, err := c.Write(make([]byte, 64<<20)) // more than the connection takes by copies
		done <- err
	}()
	_, err := io.ReadFull(s, make([]byte, 1)) // of what rides along
	require.NoError(t, err)
	sq.mu.Lock()
	sq.readErr = os.NewSyscallError("write", syscall.EPIPE)
	sq.mu.Unlock()
	_, err = io.ReadFull(s, make([]byte, 63))
	require.NoError(t, err)
	require.NoError(t, s.SetReadDeadline(time.Now().Add(50*time.Millisecond)))
	_, err = s.Read(make([]byte, 1<<20))
	assert.ErrorIs(t, err, os.ErrDeadlineExceeded)
	sq.mu.Lock()
	assert.LessOrEqual(t, sq.refused, 1, "it does not try again and again")
	sq.mu.Unlock()
	s.Close()
	assert.Error(t, <-done)
}

// TestBothBeginToWriteWithoutCredit: neither program reads before it has written,
// and the Writes that use up the buffers end just there.
func TestBothBeginToWriteWithoutCredit(t *testing.T) {
	c, s, _, _ := counted(t, 1)
	b := random(32 << 20)
	full := errors.New("no credit")
	var sent [2]int
	for i, c := range []*Conn{c, s} {
		require.Eventually(t, func() bool {
			n, err := c.out.send(b[sent[i]:], func(c *Conn) error {
				if c.session.Stalled() {
					return full
				}
				return nil
			})
			require.Equal(t, full, err)
			sent[i] += n
			return n == 0
		}, soon, 3*idleTick)
	}
	const more = 1 << 20
	var calls sync.WaitGroup
	for i, c := range []*Conn{c, s} {
		calls.Go(func() {
			n, err := c.Write(b[sent[i] : sent[i]+more])
			assert.NoError(t, err)
			assert.Equal(t, more, n)
			got := make([]byte, sent[1-i]+more)
			_, err = io.ReadFull(c, got)
			assert.NoError(t, err)
			assert.Equal(t, b[:len(got)], got)
		})
	}
	calls.Wait()
}

// TestReadAheadIsBounded: a peer that goes on writing is given more buffers, until
// what is unread fills twice the window, or until there are as many as there may
// be, however little each of them holds.
func TestReadAheadIsBounded(t *testing.T) {
	full := errors.New("no credit")
	for _, v := range []struct {
		name          string
		part          int // of a private buffer that each message fills
		least, most   int // buffers given
		leastB, mostB int // bytes unread
	}{
		{"full messages", 1, 1, aheadMost, 2*recvWindow - aheadBuffers*recvSize, 2 * recvWindow},
		{"half of that", 2, aheadMost, aheadMost, 1, 2 * recvWindow},
	} {
		t.Run(v.name, func(t *testing.T) {
			c, s, _, _ := counted(t, -1)
			size := s.session.Payload() / v.part
			var sent, ahead, unread int
			for more := true; more; {
				for n, err := 0, error(nil); err == nil; sent += n { // the peer uses up what it has
					n, err = s.out.send(streamAt(sent, size), func(c *Conn) error {
						if c.session.Stalled() {
							return full
						}
						return nil
					})
					require.True(t, err == nil || err == full, "%v", err)
				}
				require.Eventually(t, func() bool {
					c.mu.Lock()
					defer c.mu.Unlock()
					return c.session.Posted() <= stuckCredit
				}, soon, time.Millisecond)
				c.mu.Lock()
				before := int(c.promise.ahead)
				c.out.starved = true
				c.promise.readAhead()
				c.out.starved = false
				ahead, unread = int(c.promise.ahead), c.session.Unread()
				c.mu.Unlock()
				more = ahead-before == aheadBuffers
				require.LessOrEqual(t, ahead, v.most)
				require.LessOrEqual(t, unread, v.mostB)
				c.out.sendDue()
				require.Eventually(t, func() bool {
					s.mu.Lock()
					defer s.mu.Unlock()
					return !more || s.session.Room() > 0
				}, soon, time.Millisecond)
			}
			assert.GreaterOrEqual(t, ahead, v.least)
			assert.GreaterOrEqual(t, unread, v.leastB)
			_, err := readStream(c, 0, sent, 1<<20)
			require.NoError(t, err)
			c.mu.Lock()
			defer c.mu.Unlock()
			assert.Zero(t, c.promise.ahead, "given back")
		})
	}
}

// TestFillThatIsNotKnownToBeDone: bytes that the device may not have moved do not
// count.
func TestFillThatIsNotKnownToBeDone(t *testing.T) {
	c, s, cq, sq := counted(t, 1)
	newTalk(t, c, s).pipelined()
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.Read(make([]byte, 1<<20))
	}()
	require.Eventually(t, func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return sq.QueuePair != nil && c.session.Parts().ZSource.Next(1<<20, false).Advert.Len > 0
	}, soon, time.Millisecond)
	cq.mu.Lock()
	cq.keepWrites = true
	cq.mu.Unlock()
	require.NoError(t, c.SetWriteDeadline(time.Now().Add(50*time.Millisecond)))
	n, err := c.Write(streamAt(0, streamMax))
	assert.ErrorIs(t, err, os.ErrDeadlineExceeded)
	assert.Zero(t, n)
	<-done
}

// TestDeadlineMovedWhileThePeerIsToAnswer: each deadline that passes gives the peer
// its time to let go of memory.
func TestDeadlineMovedWhileThePeerIsToAnswer(t *testing.T) {
	c, s, cq, _ := counted(t, 1)
	neverGivesUp(c)
	armed := func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return !c.zcopy.writeAnswer.at.IsZero()
	}
	s.out.mu.Lock() // it answers nothing
	done := make(chan error, 1)
	go func() {
		_, err := c.Write(streamAt(0, 1<<20))
		cq.backFromWrite(t)
		done <- err
	}()
	require.Eventually(t, func() bool { return c.Stats().Cancels > 0 }, soon, time.Millisecond)
	require.NoError(t, c.SetWriteDeadline(time.Now()))
	require.Eventually(t, armed, soon, time.Millisecond)
	require.NoError(t, c.SetWriteDeadline(time.Now().Add(time.Minute)))
	c.mu.Lock() // the time to answer is over
	c.zcopy.writeAnswer.expired = true
	c.poll.wakeAllLocked()
	c.mu.Unlock()
	require.Eventually(t, func() bool { return !armed() }, soon, time.Millisecond)
	require.NoError(t, c.SetWriteDeadline(time.Now()))
	s.out.unlock()
	assert.ErrorIs(t, await(t, done, soon), os.ErrDeadlineExceeded)
	c.mu.Lock()
	defer c.mu.Unlock()
	assert.NoError(t, c.sendErr, "the connection has gone on")
}

// TestOneByteCarriesASinkAvail: a Write that is shorter than the advertisement takes it along.
func TestOneByteCarriesASinkAvail(t *testing.T) {
	c, s := zcopyPair(t, 1)
	newTalk(t, c, s).pipelined()
	s.mu.Lock()
	require.True(t, s.session.Parts().ZSink.MayOffer(1<<20, s.session.BufferSize()))
	s.session.Parts().ZSink.Offer(1, 0, 1<<20)
	s.mu.Unlock()
	before := s.Stats()
	n, err := s.Write([]byte{42})
	require.NoError(t, err)
	assert.Equal(t, 1, n)
	after := s.Stats()
	assert.Equal(t, stats.Counts{Messages: 1, Bytes: 1}, stats.Counts{Messages: after.BcopySent.Messages - before.BcopySent.Messages, Bytes: after.BcopySent.Bytes - before.BcopySent.Bytes})
	assert.Equal(t, before.ControlSent, after.ControlSent, "it went with the byte")
	s.mu.Lock()
	assert.Equal(t, uint32(1), s.session.Parts().ZSink.Advertised())
	s.mu.Unlock()
	b := make([]byte, 2)
	n, err = c.Read(b)
	require.NoError(t, err)
	assert.Equal(t, []byte{42}, b[:n])
}
