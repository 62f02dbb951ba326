package sdp

import (
	"github.com/gosdp/gosdp/bcopy"
	"github.com/gosdp/gosdp/internal/budget"
	"github.com/gosdp/gosdp/wire"
)

// What a connection promises is how many bytes its peer may have unread here: the private
// buffers that the peer has credit for or has filled, times their size, and what Gather has
// copied out of such. A promise cannot be withdrawn. So it is charged to the budget of the
// process, before the peer is told of it.
//
// While half of the budget is free, a connection begins with all that it could use, and
// with leastBuffers after that. Those are charged whatever the budget says. A peer that uses
// up what it has gets twice as much, as the program reads, and while half of the budget is
// taken one that does not gets less (adapt).
//
// The device posts recvBuffers in any case. They take memory as messages come, except on
// verbs.
const (
	recvBuffers  = 256      // private buffers that a connection promises at most, at first
	leastBuffers = 16       // and at least
	minBuffers   = 8        // to which SetReadBuffer may go: enough small messages for Gather
	recvSize     = 16 << 10 // bytes in each of them at the start,
	leastSize    = 4 << 10  // with leastBuffers,
	smallestSize = 512      // and as Config.ReadBuffer has it, at least
	// recvWindow is how many bytes the private buffers hold together, about, unless the
	// program says otherwise.
	recvWindow = 8 << 20
)

// reserve promises the private buffers of a connection that is about to come up, of which a
// peer may fill readBuffer bytes; 0: the default. The connection charges its own; unreserve
// follows in any case.
func reserve(readBuffer int) wire.Hello {
	h := ourHello(readBuffer)
	most, size := int(h.Bufs), int(h.LocalRcvSz)
	n := max(leastBuffers, min(most, budget.Process.Share()/size))
	if !budget.Process.TakeSpare(n * size) {
		n, size = min(most, leastBuffers), min(size, leastSize)
		budget.Process.Charge(n * size)
	}
	h.Bufs, h.LocalRcvSz = uint16(n), uint32(size)
	return h
}

func unreserve(h wire.Hello) { budget.Process.Give(int(h.Bufs) * int(h.LocalRcvSz)) }

// promised returns how many bytes the peer may have unread. Called with mu held.
func (c *conn) promised() int {
	return (recvBuffers+int(c.ahead)-int(c.held))*c.session.Sink.Size() + c.excess()
}

// excess returns how many bytes are held beside the private buffers of the size that they
// have now: what Gather has copied, and what came in larger ones. Called with mu held.
func (c *conn) excess() int {
	own := c.session.Sink.Own()
	return own + max(0, c.session.Sink.Bytes()-own-c.session.Sink.Lent()*c.session.Sink.Size())
}

// account charges what is promised. Called with mu held.
func (c *conn) account() {
	if c.charged == accountClosed {
		return
	}
	switch d := c.promised() - int(c.charged); {
	case d > 0:
		budget.Process.Charge(d)
	case d < 0:
		budget.Process.Give(-d)
	default:
		return
	}
	c.charged = int32(c.promised())
}

const accountClosed = -1

// closeAccount returns what is charged. Called with mu held.
func (c *conn) closeAccount() {
	if c.charged != accountClosed {
		budget.Process.Give(int(c.charged))
		c.charged = accountClosed
	}
}

// affords charges n bytes more, if the budget allows the connection so many, and reports
// whether it does. Called with mu held.
func (c *conn) affords(n int) bool {
	if c.charged == accountClosed || int(c.charged)+n > budget.Process.Share() || !budget.Process.Take(n) {
		return false
	}
	c.charged += int32(n)
	return true
}

// granted returns the size that the private buffers shall have when the peer asks for
// desired bytes, larger or smaller (§10.6): that, or what window and budget have room for.
// Called with mu held.
func (c *conn) granted(desired uint32) uint32 {
	size, n := c.session.Sink.Size(), recvBuffers+int(c.ahead)-int(c.held)
	more := min(int(min(desired, bcopy.MaxBuffer)), int(c.window)/leastBuffers) - size
	for more > smallestSize && !c.affords(more*n) {
		more /= 2
	}
	switch {
	case more > smallestSize:
		return uint32(size + more)
	case int64(desired) > int64(size):
		return uint32(size)
	}
	return desired
}

// mostBuffers is how many private buffers there shall be at most: enough to keep a stream
// going, and no more than the program wants to be unread. Called with mu held.
func (c *conn) mostBuffers() int {
	return min(recvBuffers, max(minBuffers, int(c.window)/c.session.Sink.Size()))
}

// setWindow has the private buffers hold so many bytes together. Called with mu held.
func (c *conn) setWindow(bytes int) {
	c.window = int32(max(0, min(bytes, 1<<30)))
	c.aim()
}

// aim sets how many private buffers there shall be after their size or the window has
// changed: all, if the budget has them. What is promised beyond that ends as it is used.
// Called with mu held.
func (c *conn) aim() {
	c.account() // buffers may have become smaller
	most := c.mostBuffers()
	if more := most - c.session.Target; more <= 0 || c.affords(more*c.session.Sink.Size()) {
		c.session.Target = most
		c.repost()
		c.account()
	}
}

// consume notes that n bytes of the oldest payload were read, and gives back what they were
// in if that was all of it. Called with mu held.
func (c *conn) consume(n int) {
	own := c.session.Sink.Own()
	if owner := c.session.Sink.Consume(n); owner != nil {
		c.adapt()
		c.release(owner)
	} else if c.session.Sink.Own() != own {
		c.repost()
		c.account()
	}
}

// adapt has a peer that has used up nearly all of its credit get twice as much, if the
// budget allows it; and while half of the budget is taken one that leaves half unused get a
// private buffer less. Called with mu held, when the program has read.
func (c *conn) adapt() {
	switch credit := c.session.Account.PeerCredit(); {
	case credit <= max(c.session.Target/4, stuckCredit):
		more := min(c.session.Target, c.mostBuffers()-c.session.Target)
		if more > 0 && c.affords(more*c.session.Sink.Size()) {
			c.session.Target += more
		}
	case credit > c.session.Target/2 && c.session.Target > leastBuffers && budget.Process.Tight():
		c.session.Target--
	}
}

// repost gives the peer credit for the private buffers that there shall be, but for as many
// as would hold the excess. Called with mu held.
func (c *conn) repost() {
	size := c.session.Sink.Size()
	if n := int(c.held) - (recvBuffers - c.session.Target) - (c.excess()+size-1)/size; n > 0 {
		c.session.Account.Post(n)
		c.held -= int32(n)
	}
}
