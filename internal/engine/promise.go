package engine

import (
	"errors"
	"math"

	"github.com/gosdp/gosdp/bcopy"
	"github.com/gosdp/gosdp/internal/budget"
	"github.com/gosdp/gosdp/wire"
)

const (
	RecvBuffers  = 256      // private buffers that a connection promises at first, at most
	leastBuffers = 16       // and at least
	minBuffers   = 8        // the least that SetReadBuffer can ask for: enough small messages to gather
	recvSize     = 16 << 10 // bytes in each of them at the start,
	leastSize    = 4 << 10  // with leastBuffers,
	smallestSize = 512      // and with a small Tuning.Window, at least
	// recvWindow is how many bytes the private buffers hold together, approximately, unless
	// the program says otherwise.
	recvWindow = 8 << 20
	mostWindow = 1 << 29 // so that what is charged for a connection, at most four times as much, fits

	// connMemory is what is charged for a connection beside its buffers: goroutines, the queue pair, a chunk in use, and
	// the garbage collector's share.
	connMemory = 32 << 10

	leastKernelBuffer = 64 << 10 // bytes that SetReadBuffer leaves to the kernel over iwarp, at least

	exactBuffers = 32      // private buffers on a device on which each takes memory, at most,
	exactWindow  = 1 << 20 // and how many bytes they hold instead of recvWindow
	// exactUnread is how many bytes a program may leave unread there in any case.
	exactUnread = 256 << 10
)

const (
	aheadBuffers = 64   // buffers that readAhead posts at a time,
	aheadMost    = 1024 // and in all, however small each of them is
	stuckCredit  = 4    // with this much credit a peer may send one message with payload, or none

	gatherAhead = 1 << 20 // bytes of small messages that readAhead allows at a time
	// leastAhead is how many bytes readAhead allows whatever the window: TCP's send buffer holds
	// as many (net.ipv4.tcp_wmem), whatever the peer's receive buffer.
	leastAhead = 4 << 20
)

// promise is what a connection promises its peer: how many bytes it may have unread here.
// These are the private buffers that the peer has credit for or has filled, times their
// size, and the memory into which small messages were gathered. A promise cannot be
// withdrawn, so it is charged to the budget of the process before the peer is told.
//
// While half of the budget is free, a connection begins with all that it could use, and
// otherwise with leastBuffers. Without room for these there is no SDP over RDMA. A peer that uses
// up its credit gets twice as much as the program reads. While half of the budget is taken,
// a peer that leaves credit unused gets less (adapt).
//
// The device posts RecvBuffers in any case, and they take memory as messages arrive. A device
// that is not elastic, as verbs, only posts the buffers that there shall be, because each of them
// is locked in memory. It begins with few (rdma.Dialler.Start) and gets more as the peer uses them.
//
// Guarded by Conn.mu.
type promise struct {
	conn *Conn

	held    int32 // private buffers that the device has posted and the peer is not told of
	ahead   int32 // private buffers beyond RecvBuffers; see readAhead
	window  int32 // bytes that the private buffers shall hold together
	charged int32 // bytes charged to the budget, with connMemory; see account
}

// Reserve charges the private buffers of a connection before its handshake, and returns the
// Hello that announces them. The peer may fill readBuffer bytes; 0 means the default. The
// connection charges its own, so Unreserve must follow in any case. It fails if the budget has no
// room for another connection.
func Reserve(readBuffer int) (wire.Hello, error) {
	h := OurHello(readBuffer)
	most, size := int(h.Bufs), int(h.LocalRcvSz)
	n := max(leastBuffers, budget.Process.Clip(most*size)/size)
	if !budget.Process.TakeSpare(n*size + connMemory) {
		n, size = min(most, leastBuffers), min(size, leastSize)
		if !budget.Process.Take(n*size + connMemory) {
			return wire.Hello{}, errMemory
		}
	}
	h.Bufs, h.LocalRcvSz = uint16(n), uint32(size)
	return h, nil
}

// Unreserve returns what Reserve has charged.
func Unreserve(h wire.Hello) { budget.Process.Give(int(h.Bufs)*int(h.LocalRcvSz) + connMemory) }

var errMemory = errors.New("memory budget is used up; raise SDP_MEMORY")

// bytes returns how many bytes the peer may have unread.
func (p *promise) bytes() int { return p.buffers()*p.conn.session.BufferSize() + p.excess() }

// buffers returns how many private buffers the peer has credit for or has filled.
func (p *promise) buffers() int { return RecvBuffers + int(p.ahead) - int(p.held) }

// excess returns how many bytes are held beyond private buffers of the present size: those
// that were gathered, and those that arrived in larger buffers.
func (p *promise) excess() int {
	s := &p.conn.session
	lent, own := s.Held()
	return own + max(0, s.Unread()-own-lent*s.BufferSize())
}

// account charges what is promised.
func (p *promise) account() {
	if p.charged == accountClosed {
		return
	}
	switch d := p.bytes() + connMemory - int(p.charged); {
	case d > 0:
		budget.Process.Charge(d)
	case d < 0:
		budget.Process.Give(-d)
	default:
		return
	}
	p.charged = int32(p.bytes() + connMemory)
}

const accountClosed = -1

// end returns what is charged.
func (p *promise) end() {
	if p.charged != accountClosed {
		budget.Process.Give(int(p.charged))
		p.charged = accountClosed
	}
}

// affords charges n more bytes if the budget allows this connection so many, and reports
// whether it does.
func (p *promise) affords(n int) bool {
	if p.charged == accountClosed || !budget.Process.Allows(int(p.charged)+n) || !budget.Process.Take(n) {
		return false
	}
	p.charged += int32(n)
	return true
}

// resize changes the size of the private buffers as the peer asks (§10.6), as far as the
// window and the budget allow.
func (p *promise) resize(desired uint32) {
	c := p.conn
	size := c.session.Resize(p.granted(desired))
	count := p.posted()
	if p.conn.exact { // larger ones are fewer: no more get memory at first
		c.session.SetTarget(min(c.session.Target(), p.mostBuffers()))
		count = c.session.Target() + int(p.ahead)
	}
	old := c.qp.ProvideReceive(count, size)
	if p.conn.exact && old != math.MaxInt32 {
		p.provide() // until the peer has used what it was promised
	}
	if old > 0 {
		old += int(c.poll.unhandled) // in buffers that are not posted any more
	}
	c.session.Older(old)
	p.aim()
}

// granted returns the new size of the private buffers if the peer asks for desired bytes.
func (p *promise) granted(desired uint32) uint32 {
	size, n := p.conn.session.BufferSize(), p.buffers()
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

// provide makes the device post as many private buffers as there shall be, and reports whether
// it can.
func (p *promise) provide() bool {
	c := p.conn
	return c.qp.ProvideReceive(p.posted(), c.session.BufferSize()) != math.MaxInt32
}

// posted returns how many private buffers the device shall post.
func (p *promise) posted() int {
	if p.conn.exact {
		return max(p.conn.session.Target()+int(p.ahead), p.buffers())
	}
	return RecvBuffers + int(p.ahead)
}

// setTarget sets how many private buffers there shall be, unless the device has no memory for
// them.
func (p *promise) setTarget(n int) {
	s := &p.conn.session
	was := s.Target()
	s.SetTarget(n)
	if p.conn.exact && n != was && !p.provide() {
		s.SetTarget(was)
	}
}

// mostBuffers returns how many private buffers there shall be at most: enough to keep a
// stream going, and no more than the program wants to have unread.
func (p *promise) mostBuffers() int {
	most := RecvBuffers
	if p.conn.exact {
		most = exactBuffers
	}
	return min(most, max(minBuffers, int(p.window)/p.conn.session.BufferSize()))
}

// setWindow sets how many bytes the private buffers shall hold together.
func (p *promise) setWindow(bytes int) {
	p.window = int32(max(0, min(bytes, mostWindow)))
	p.aim()
}

// aim sets how many private buffers there shall be after their size or the window has
// changed: as many as are useful, if the budget has them. Buffers that are promised beyond
// that are not promised again after they were used.
func (p *promise) aim() {
	p.account() // buffers may have become smaller
	s, most := &p.conn.session, p.mostBuffers()
	if p.conn.exact {
		most = min(most, s.Target()) // there will be more when the peer uses them up
	}
	if more := most - s.Target(); more <= 0 || p.affords(more*s.BufferSize()) {
		p.setTarget(most)
		p.repost()
		p.account()
	}
}

// consume notes that the program has read n bytes of the oldest payload, and returns the
// memory of a message that was read completely.
func (p *promise) consume(n int) {
	s := &p.conn.session
	_, own := s.Held()
	if owner := s.Consume(n); owner != nil {
		p.adapt()
		p.release(owner)
	} else if _, now := s.Held(); now != own {
		p.repost()
		p.account()
	}
}

// release returns the private buffer of payload that was read or gathered to the device, and
// to the peer as credit unless there are more buffers than there shall be. The buffer of a
// message without payload is always posted again: the reserved credits stand for it.
func (p *promise) release(owner bcopy.Owner) {
	if p.conn.exact && p.ahead == 0 && p.buffers() > p.conn.session.Target() {
		p.held++ // there shall be fewer
		p.provide()
		owner.Release()
		p.account()
		return
	}
	owner.Release()
	if p.ahead > 0 {
		p.ahead--
		p.provide()
	} else {
		p.held++
		p.repost()
	}
	p.account()
}

// gather frees private buffers that hold little each, if the program does not read.
func (p *promise) gather() {
	if p.conn.session.Gather(p.release) {
		p.account()
		p.conn.out.checkDueLocked()
	}
}

// adapt changes how many private buffers there shall be when the program has read: twice as
// many for a peer that has used nearly all of its credit, if the budget allows it, and one
// less for a peer that leaves half unused while half of the budget is taken.
func (p *promise) adapt() {
	s := &p.conn.session
	target := s.Target()
	switch credit := s.PeerCredit(); {
	case credit <= max(target/4, stuckCredit):
		more := min(target, p.mostBuffers()-target)
		if more > 0 && p.affords(more*s.BufferSize()) {
			p.setTarget(target + more)
		}
	case credit > target/2 && target > leastBuffers && budget.Process.Tight():
		p.setTarget(target - 1)
	}
}

// repost gives the peer credit for the private buffers that there shall be, except for as
// many as would hold the excess, unless readAhead has allowed that.
func (p *promise) repost() {
	s := &p.conn.session
	size := s.BufferSize()
	excess := max(0, p.excess()-s.Ahead())
	if n := int(p.held) - (RecvBuffers - s.Target()) - (excess+size-1)/size; n > 0 {
		s.Post(n)
		p.held -= int32(n)
	}
}

// readAhead gives the peer more buffers while it waits for this program to read and this
// program waits for it: two programs that write much before they read would otherwise wait
// for each other forever. It stops at twice the window, or at leastAhead. Small messages do not
// get buffers but are gathered. On a device that began with few buffers the peer gets more
// although this program does not wait, up to exactUnread, because it could have written as much
// over TCP. It is called when nothing has moved for a tick.
func (p *promise) readAhead() {
	c := p.conn
	few := p.conn.exact && p.bytes() < exactUnread
	if !c.out.starved && !few || c.recvErr != nil || c.session.Posted() > stuckCredit {
		return
	}
	most := min(max(2*int(p.window), leastAhead), math.MaxInt32)
	if c.out.starved && budget.Process.Allows(int(p.charged)+gatherAhead) && c.session.GatherMore(gatherAhead, most) {
		p.gather()
	}
	if c.session.Posted() > stuckCredit || p.ahead >= aheadMost {
		return
	}
	size := c.session.BufferSize()
	more := min(aheadBuffers, (most-c.session.Unread())/size)
	for more > 0 && !p.affords(more*size) {
		more /= 2
	}
	if most := c.qp.Limits().Buffers; most > 0 {
		more = min(more, most-p.posted())
	}
	defer p.account()
	if more <= 0 {
		return
	}
	p.ahead += int32(more)
	if !p.provide() {
		p.ahead -= int32(more)
		return
	}
	c.session.Post(more)
	c.out.due.Store(true)
}
