//go:build linux

package stream

import (
	"errors"
	"net"
	"os"
	"runtime"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/gosdp/gosdp/internal/gate"
	"github.com/gosdp/gosdp/internal/shm"
	"github.com/gosdp/gosdp/internal/spin"
	"github.com/gosdp/gosdp/internal/timing"
)

// place is where a direction is, as this end sees it.
type place uint32

const (
	// onTCP: the direction has not moved. Its bytes go through TCP, and the gate is looked at.
	onTCP place = iota
	// inRing: the direction has moved.
	inRing
	// returning: the reader has recalled the direction; TCP has or gets what was left in the ring.
	returning
	// home: the direction uses TCP for good, as far as this link goes, and does not touch the segment.
	home
	// visited: a visit has the half of a call that waits.
	visited

	// lent is added to the place while a call waits on the socket and does not look at the link.
	lent place = 1 << 8
)

// half is one direction of a link.
type half struct {
	place atomic.Uint32
	gate  *gate.Gate
}

func (h *half) at() place    { return place(h.place.Load()) }
func (h *half) move(p place) { h.place.Store(uint32(p)) }

func (h *half) swap(from, to place) bool { return h.place.CompareAndSwap(uint32(from), uint32(to)) }

// lend lets visits have the half while its holder waits on the socket.
func (h *half) lend() { h.move(h.at() | lent) }

// reclaim ends that, if the half is lent.
func (h *half) reclaim() {
	for {
		switch p := h.at(); {
		case p == visited:
			runtime.Gosched()
		case p&lent == 0 || h.swap(p, p&^lent):
			return
		}
	}
}

// borrow takes a half that is lent, and returns where its direction is.
func (h *half) borrow() (p place, ok bool) {
	p = h.at()
	return p &^ lent, p&lent != 0 && h.swap(p, visited)
}

// onStep is called by atStep. Tests set it, to stop or kill a process at a step.
var onStep func(name string)

// atStep marks a step of moving or coming home, for tests.
func atStep(name string) {
	if onStep != nil {
		onStep(name)
	}
}

// link is one end's use of a segment.
type link struct {
	c    *Conn
	raw  syscall.RawConn
	seg  *shm.Segment
	bell *shm.Doorbell
	refs atomic.Int32 // one for each direction that is not home, and one for each call that looks without a lock
	seen atomic.Bool  // seeHome has been called

	visiting atomic.Int32 // visits in progress

	counted atomic.Bool
	charged int // to the budget; guarded by wmu

	reader
	writer
}

// Attach gives the connection a segment and a connected Unix socket as its doorbell, both of which belong to it
// from then on. It fails if the connection has a segment, or is closed.
func (c *Conn) Attach(seg *shm.Segment, socket int) error {
	c.stepMu.Lock()
	defer c.stepMu.Unlock()
	return c.attach(seg, socket, 0)
}

// attach is Attach with stepMu, which Close takes after it has marked the connection. charged is what the budget has been
// charged for the segment.
func (c *Conn) attach(seg *shm.Segment, socket, charged int) error {
	bell, err := shm.NewDoorbell(socket)
	if err != nil {
		c.policy.give(charged)
		seg.Unmap()
		return err
	}
	raw, err := c.tcp.SyscallConn()
	if err == nil && (c.is(closed) || c.linked.Load() != nil) {
		err = errAttached
	}
	if err != nil {
		c.policy.give(charged)
		bell.Close()
		seg.Unmap()
		return err
	}
	l := &link{c: c, raw: raw, seg: seg, bell: bell, charged: charged}
	l.refs.Store(2)
	l.reader.init(l)
	l.writer.init(l)
	l.reader.lend() // a call that waits on the socket already does not know of the link
	l.writer.lend()
	c.linked.Store(l)
	atStep("attached")
	monitor.add(c)
	return nil
}

var errAttached = errors.New("connection has shared memory already, or is closed")

// hold keeps the link's memory mapped until drop, and fails if it is not any more.
func (l *link) hold() bool {
	for {
		n := l.refs.Load()
		if n == 0 {
			return false
		}
		if l.refs.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// countMove counts that the connection has moved, in the direction that moves first.
func (l *link) countMove() {
	if !l.counted.Swap(true) {
		l.c.moves.Add(1)
	}
}

func (l *link) drop() {
	if l.refs.Add(-1) > 0 {
		return
	}
	atStep("to unmap")
	c, in, out := l.c, l.reader.ring.Position(), l.writer.ring.Position()
	l.bell.Close()
	l.seg.Release()
	l.discharge(l.charged)
	c.mu.Lock()
	c.ringIn, c.ringOut = c.ringIn+in, c.ringOut+out
	c.linked.CompareAndSwap(l, nil)
	c.mu.Unlock()
	c.cameHome()
}

// bring ends a direction's use of the segment. The caller has the half.
func (l *link) bring(h *half) {
	if h.at() != home {
		h.move(home)
		l.bell.Rouse() // comeHome may wait for it
		l.drop()
	}
}

// wakeReader wakes the peer's Read if it sleeps.
func (l *link) wakeReader() {
	if w := &l.writer; w.ring.WakeReader() {
		w.ring.Rang(uint64(spin.Clock()))
		l.bell.Ring()
	}
}

// ring wakes the peer if it must be woken.
func (l *link) ring(sleeps bool) {
	if sleeps {
		l.bell.Ring()
	}
}

// mustLeave reports whether both directions must come home: an end wants it, or the peer has gone.
func (l *link) mustLeave() bool { return l.seg.Leaving() || l.bell.Gone() }

// refuse keeps the connection on TCP.
func (l *link) refuse(why error) {
	l.c.stay(why)
	l.seg.Leave()
	l.bell.Ring()
	l.bell.Rouse()
}

// rouse makes calls that sleep on the doorbell look again.
func (c *Conn) rouse() {
	if l := c.linked.Load(); l != nil && l.hold() {
		l.bell.Rouse()
		l.drop()
	}
}

// Leave asks both ends to bring both directions home, and does here what can be done without waiting. It
// reports whether the connection is on TCP now.
func (c *Conn) Leave() bool {
	l := c.linked.Load()
	if l == nil || l.leave() {
		return true
	}
	l.seeHome()
	return false
}

// leave asks for a link to be left, and visits it.
func (l *link) leave() (left bool) {
	if !l.hold() {
		return true
	}
	atStep("leaving")
	if !l.seg.Leaving() {
		l.seg.Leave()
		l.bell.Ring()
		l.bell.Rouse()
	}
	l.look()
	l.drop()
	return l.refs.Load() == 0
}

// seeHome looks after a link that leaves while the program's calls may wait on TCP, each for the other end to do its part.
func (l *link) seeHome() {
	if !l.seen.Swap(true) {
		go l.comeHome(incoming|outgoing, within(timing.Home))
	}
}

// Visit does for an idle connection what its calls would do: it finds out whether the peer has gone or
// wants to leave, and brings home what it can without waiting. It reports whether the connection is on TCP.
func (c *Conn) Visit() bool {
	l := c.linked.Load()
	if l == nil || !l.hold() {
		return true
	}
	l.look()
	l.drop()
	return l.refs.Load() == 0
}

// look is Visit for a link that is held.
func (l *link) look() {
	l.bell.Look()
	if l.mustLeave() {
		l.visit(&l.reader.half, &l.c.rmu, l.leaveReader)
		if l.reader.at() == home {
			l.interruptRead()
		}
		l.visit(&l.writer.half, &l.c.wmu, l.leaveWriter)
		l.bell.Rouse() // those who sleep there do it themselves
	}
}

// tryLocker is a mutex.
type tryLocker interface {
	TryLock() bool
	Unlock()
}

// visit makes a direction leave, if no call uses its half. leave returns where it is then, and does not wait.
func (l *link) visit(h *half, mu tryLocker, leave func(place) place) {
	l.visiting.Add(1)
	defer l.visiting.Add(-1)
	if at, ok := h.borrow(); ok {
		if at = leave(at); at != home {
			at |= lent
		}
		l.put(h, at)
		return
	}
	if mu.TryLock() {
		if h.reclaim(); h.at() != home {
			at := h.at()
			l.put(h, leave(at))
		}
		mu.Unlock()
	}
}

// put notes where a direction is. The caller has the half.
func (l *link) put(h *half, at place) {
	if at == home {
		l.bring(h)
	} else {
		h.move(at)
	}
}

// cause returns why a call on the socket has ended, instead of how it was interrupted.
func (c *Conn) cause(op string, err error) error {
	switch {
	case c.is(closed):
		return net.ErrClosed
	case !errors.Is(err, os.ErrDeadlineExceeded):
	case op == "write" && c.is(writeShut):
		return unix.EPIPE
	default:
		return os.ErrDeadlineExceeded
	}
	if e := (*net.OpError)(nil); errors.As(err, &e) {
		return e.Err
	}
	return err
}
