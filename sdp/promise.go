package sdp

import (
	"github.com/gosdp/gosdp/bcopy"
	"github.com/gosdp/gosdp/internal/budget"
	"github.com/gosdp/gosdp/internal/session"
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

// promise is what a connection promises its peer. Guarded by conn.mu.
type promise struct {
	session *session.Session // the connection's: how much is unread, and the credit of the peer

	held    int32 // private buffers that the device has posted and the peer is not told of
	ahead   int32 // private buffers beyond recvBuffers; see readAhead
	window  int32 // bytes that the private buffers shall hold together
	charged int32 // bytes, to the budget; see account
}

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

// bytes returns how many bytes the peer may have unread.
func (p *promise) bytes() int {
	return p.buffers()*p.session.Sink.Size() + p.excess()
}

// buffers returns how many private buffers the peer has credit for or has filled.
func (p *promise) buffers() int { return recvBuffers + int(p.ahead) - int(p.held) }

// excess returns how many bytes are held beside the private buffers of the size that they
// have now: what Gather has copied, and what came in larger ones.
func (p *promise) excess() int {
	own := p.session.Sink.Own()
	return own + max(0, p.session.Sink.Bytes()-own-p.session.Sink.Lent()*p.session.Sink.Size())
}

// account charges what is promised.
func (p *promise) account() {
	if p.charged == accountClosed {
		return
	}
	switch d := p.bytes() - int(p.charged); {
	case d > 0:
		budget.Process.Charge(d)
	case d < 0:
		budget.Process.Give(-d)
	default:
		return
	}
	p.charged = int32(p.bytes())
}

const accountClosed = -1

// end returns what is charged.
func (p *promise) end() {
	if p.charged != accountClosed {
		budget.Process.Give(int(p.charged))
		p.charged = accountClosed
	}
}

// affords charges n bytes more, if the budget allows the connection so many, and reports
// whether it does.
func (p *promise) affords(n int) bool {
	if p.charged == accountClosed || int(p.charged)+n > budget.Process.Share() || !budget.Process.Take(n) {
		return false
	}
	p.charged += int32(n)
	return true
}

// granted returns the size that the private buffers shall have when the peer asks for
// desired bytes, larger or smaller (§10.6): that, or what window and budget have room for.
func (p *promise) granted(desired uint32) uint32 {
	size, n := p.session.Sink.Size(), p.buffers()
	more := min(int(min(desired, bcopy.MaxBuffer)), int(p.window)/leastBuffers) - size
	for more > smallestSize && !p.affords(more*n) {
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
// going, and no more than the program wants to be unread.
func (p *promise) mostBuffers() int {
	return min(recvBuffers, max(minBuffers, int(p.window)/p.session.Sink.Size()))
}

// setWindow has the private buffers hold so many bytes together.
func (p *promise) setWindow(bytes int) {
	p.window = int32(max(0, min(bytes, 1<<30)))
	p.aim()
}

// aim sets how many private buffers there shall be after their size or the window has
// changed: all, if the budget has them. What is promised beyond that ends as it is used.
func (p *promise) aim() {
	p.account() // buffers may have become smaller
	most := p.mostBuffers()
	if more := most - p.session.Target; more <= 0 || p.affords(more*p.session.Sink.Size()) {
		p.session.Target = most
		p.repost()
		p.account()
	}
}

// consume notes that n bytes of the oldest payload were read, and gives back what they were
// in if that was all of it. Called with mu held.
func (c *conn) consume(n int) {
	own := c.session.Sink.Own()
	if owner := c.session.Sink.Consume(n); owner != nil {
		c.promise.adapt()
		c.release(owner)
	} else if c.session.Sink.Own() != own {
		c.promise.repost()
		c.promise.account()
	}
}

// adapt has a peer that has used up nearly all of its credit get twice as much, if the
// budget allows it; and while half of the budget is taken one that leaves half unused get a
// private buffer less. Called with mu held, when the program has read.
func (p *promise) adapt() {
	switch credit := p.session.Account.PeerCredit(); {
	case credit <= max(p.session.Target/4, stuckCredit):
		more := min(p.session.Target, p.mostBuffers()-p.session.Target)
		if more > 0 && p.affords(more*p.session.Sink.Size()) {
			p.session.Target += more
		}
	case credit > p.session.Target/2 && p.session.Target > leastBuffers && budget.Process.Tight():
		p.session.Target--
	}
}

// repost gives the peer credit for the private buffers that there shall be, but for as many
// as would hold the excess.
func (p *promise) repost() {
	size := p.session.Sink.Size()
	if n := int(p.held) - (recvBuffers - p.session.Target) - (p.excess()+size-1)/size; n > 0 {
		p.session.Account.Post(n)
		p.held -= int32(n)
	}
}
