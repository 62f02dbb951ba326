package engine

import (
	"sync"
	"sync/atomic"

	"github.com/gosdp/gosdp/internal/bubble"
	"github.com/gosdp/gosdp/internal/lockorder"
	"github.com/gosdp/gosdp/internal/session"
	"github.com/gosdp/gosdp/sdp/stats"
	"github.com/gosdp/gosdp/wire"
)

// sender posts the messages of a connection in their order.
//
// mu guards that order. It is held from the moment a message gets its sequence number until
// the device has it, and never while waiting. It is taken before Conn.mu.
//
// A goroutine that makes control messages due sets due and calls sendDue. If another
// goroutine is sending, that one sends them: every holder of mu calls unlock, which checks
// due.
type sender struct {
	conn *Conn
	mu   lockorder.Mutex[lockorder.ConnSend]
	due  atomic.Bool // control messages may be due

	starved bool  // a Write waits for the peer to grant credit. Guarded by Conn.mu
	batch   uint8 // how many messages are worth posting at once
}

// sendDue sends the control messages that are due, as far as credit allows. If another
// goroutine is sending, it leaves them to it.
func (s *sender) sendDue() {
	for s.due.Load() && s.mu.TryLock() {
		s.sendControl()
		s.mu.Unlock()
	}
}

// unlock releases mu.
func (s *sender) unlock() {
	s.mu.Unlock()
	if s.due.Load() {
		s.sendDue()
	}
}

// checkDueLocked sets due if the Session has control messages that should be sent.
func (s *sender) checkDueLocked() {
	if s.conn.session.Due() {
		s.due.Store(true)
	}
}

// flushControlReleasing sends the control messages that are due, as far as credit allows, and
// waits for a goroutine that is sending. It releases Conn.mu in between.
func (s *sender) flushControlReleasing() {
	s.conn.mu.Unlock()
	s.mu.Lock()
	s.sendControl()
	s.unlock()
	s.conn.mu.Lock()
}

// sendControl sends the control messages that are due, one after the other. The caller must
// hold mu.
func (s *sender) sendControl() {
	c := s.conn
	b := newBatch()
	defer freeBatch(b)
	for {
		c.mu.Lock()
		s.due.Store(false)
		if c.closer.finished || !c.session.Control(b, c.sendErr != nil) {
			s.finishAbortLocked()
			c.mu.Unlock()
			return
		}
		c.mu.Unlock()

		n, err := c.qp.PostSend(b.WRs)
		c.mu.Lock()
		c.session.Sent(b, n)
		if n == 1 {
			c.traffic.ControlSent++
			switch b.MID() {
			case wire.MIDDisConn:
				c.poll.wakeAllLocked() // a call that waits for it may be polling
			case wire.MIDAbortConn:
				s.finishAbortLocked()
			}
		} else {
			// This is never ErrNoRoom: the device has room for more control messages than
			// credit allows.
			c.sendFailedLocked(err)
			s.finishAbortLocked()
		}
		c.mu.Unlock()
		if n != 1 {
			return
		}
		if c.qp.Busy() {
			c.qp.Flush()
		}
	}
}

// finishAbortLocked aborts the channel if an AbortConn was due, which was sent or cannot be.
func (s *sender) finishAbortLocked() {
	if s.conn.session.DropAbort() {
		s.conn.abortLocked()
	}
}

// send sends b as Data messages until the device has taken all of it, or stop returns an
// error. It returns how many bytes the device has taken. The caller must hold writeMu.
//
// After each post it waits, without out.mu, for what prevents the next one: room in the
// device (Busy), or credit (Stalled).
func (s *sender) send(b []byte, stop func(*Conn) error) (n int, err error) {
	c := s.conn
	o := newBatch()
	defer freeBatch(o)
	for {
		k, err := s.post(o, b[n:])
		if n += k; err != nil {
			return n, err
		}
		busy := c.qp.Busy()
		if n == len(b) && !busy {
			s.settle(stop)
			return n, nil
		}
		c.mu.Lock()
		if err = stop(c); err == nil && busy {
			err = s.waitRoomReleasing()
		}
		if err == nil && !busy && c.session.Stalled() {
			c.traffic.CreditStalls++
		}
		for err == nil && !busy && c.session.Stalled() {
			s.waitCreditReleasing()
			err = stop(c)
		}
		c.mu.Unlock()
		if err != nil {
			c.qp.Flush() // this call does not wait for the rest, but the device has it
			if n == len(b) {
				err = nil
			}
			return n, err
		}
	}
}

// post posts as much of b as credit, the device and a Batch allow, and returns how many
// bytes the device took.
func (s *sender) post(o *session.Batch, b []byte) (n int, err error) {
	c := s.conn
	s.mu.Lock()
	c.mu.Lock()
	if c.session.Preceded() {
		c.mu.Unlock()
		s.sendControl()
		c.mu.Lock()
	}
	room, size := min(c.session.Room(), int(s.batch)), 0
	if room > 0 {
		size = s.payloadLocked(len(b))
	}
	c.session.Data(o, b, room, size)
	taken := 0
	if o.Carries() {
		taken, err = c.qp.PostSend(o.WRs)
	} else {
		c.mu.Unlock()
		if len(o.WRs) > 0 {
			taken, err = c.qp.PostSend(o.WRs)
		}
		c.mu.Lock()
	}
	if taken > 0 {
		c.poll.activity++
	}
	n, due := c.session.Sent(o, taken)
	c.traffic.BcopySent.Add(stats.Counts{Messages: uint64(taken), Bytes: uint64(n)})
	if err != nil {
		err = c.sendFailedLocked(err)
	}
	if due {
		s.due.Store(true)
	}
	c.mu.Unlock()
	s.unlock()
	return n, err
}

// payloadLocked returns how many bytes may follow the BSDH of a message if n bytes of
// payload are to be sent, possibly together with an advertisement: as many as fit into the
// peer's private buffers, or fewer if the device has no memory for that.
func (s *sender) payloadLocked(n int) int {
	most := min(s.conn.session.Payload(), n+session.Extension)
	return s.conn.qp.Width(most+wire.HeaderLen) - wire.HeaderLen
}

// settle waits until everything that was posted has left this process, or stop returns an
// error. In that case the device has the rest and sends it, but this call does not wait.
func (s *sender) settle(stop func(*Conn) error) {
	c := s.conn
	for !c.qp.Settled() {
		c.mu.Lock()
		err := stop(c)
		if err == nil {
			err = s.waitDeviceReleasing(c.qp.Settle)
		}
		c.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// waitRoomReleasing waits until the device has room. It releases mu in between.
func (s *sender) waitRoomReleasing() error { return s.waitDeviceReleasing(s.conn.qp.WaitRoom) }

// waitDeviceReleasing calls wait without mu, while the background poller keeps reading:
// otherwise two ends that wait for each other's room would wait forever. In a synctest bubble
// the poller then ends, because the bubble's clock stands still while it waits for the network.
func (s *sender) waitDeviceReleasing(wait func() error) error {
	c := s.conn
	c.poll.background.keep()
	c.poll.startBackgroundLocked()
	c.poll.inRoom = true
	c.mu.Unlock()
	err := wait()
	c.mu.Lock()
	c.poll.inRoom = false
	if bubble.Inside() {
		c.poll.retireLocked()
	}
	if err != nil {
		return c.sendFailedLocked(err)
	}
	return nil
}

// waitCreditReleasing waits once for news while the peer has granted too little credit. It
// releases mu in between.
func (s *sender) waitCreditReleasing() {
	s.starved = true
	idleMonitor.watchLocked(s.conn)
	s.conn.poll.waitReleasing()
	s.starved = false
}

// batchPool recycles Batches, so that an idle connection holds none.
var batchPool = sync.Pool{New: func() any { return new(session.Batch) }}

func newBatch() *session.Batch { return batchPool.Get().(*session.Batch) }

func freeBatch(b *session.Batch) {
	b.Reset()
	batchPool.Put(b)
}
