//go:build linux

package stream

import (
	"errors"
	"math"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gosdp/gosdp/internal/meeting"
	"github.com/gosdp/gosdp/internal/trigger"
)

// Policy says whether and when connections move.
type Policy struct {
	// At is the score at which a connection moves; see trigger.Memory.
	At int
	// Admit reports why this process should not share memory for another connection now: a limit is near, or the program
	// has set itself a sandbox. Nil: it always may.
	Admit func() error
	// Take asks for bytes of memory that a peer that does not read may fill, and Give returns them. Nil: there is no limit.
	Take func(bytes int) bool
	Give func(bytes int)
	// Allow reports whether a process of another user may share memory with this one. Nil: none.
	Allow func(uid uint32) bool
	// Learn is told once about each connection: whether it has lived for so long that it should have moved at once, or has
	// ended before a move would have paid. Nil: nobody wants to know.
	Learn func(long bool)
}

// mover brings a connection together with its peer, in the calls of the program.
type mover struct {
	policy  *Policy // nil: the connection never moves by itself
	dialled bool

	got    atomic.Bool   // a Read has returned bytes since the last Write
	turns  atomic.Uint64 // Writes after a Read
	polled atomic.Bool   // the program may wait on the descriptor itself
	next   atomic.Uint64 // the score at which step has something to do

	firstIn, firstOut first

	stepMu  sync.Mutex // taken after rmu and wmu
	trigger trigger.Trigger
	ends    meeting.Ends
	meeting *meeting.Meeting
	learned bool
	moves   atomic.Uint64
	why     atomic.Pointer[error] // why the last meeting has failed
}

// first are the first bytes of a direction. They are written with the lock of that direction, before n.
type first struct {
	b [meeting.FirstLen]byte
	n atomic.Uint32
}

// sealed is added to first.n when other bytes have gone through the socket: what follows is not next.
const sealed = 1 << 8

func (f *first) add(b []byte) {
	if n := f.n.Load(); n < meeting.FirstLen {
		f.n.Store(n + uint32(copy(f.b[n:], b)))
	}
}

func (f *first) seal() {
	if n := f.n.Load(); n < meeting.FirstLen {
		f.n.Store(n | sealed)
	}
}

func (f *first) bytes() []byte { return f.b[:f.n.Load()&^sealed] }

// Move makes the connection move to shared memory when that pays.
func (c *Conn) Move(dialled bool, p *Policy) {
	c.policy, c.dialled = p, dialled
	c.next.Store(c.trigger.Start(dialled, p.At, time.Since(epoch)))
}

// Moves returns how often the connection has moved, and why the last attempt has failed.
func (c *Conn) Moves() (n uint64, failed error) {
	if err := c.why.Load(); err != nil {
		failed = *err
	}
	return c.moves.Load(), failed
}

// received counts bytes that a Read has taken from TCP.
func (c *Conn) received(b []byte) {
	if len(b) == 0 {
		return
	}
	if c.in.Load() < meeting.FirstLen {
		c.firstIn.add(b)
	}
	c.in.Add(uint64(len(b)))
	if !c.got.Load() {
		c.got.Store(true)
	}
}

// sent counts bytes that a Write has put into TCP.
func (c *Conn) sent(b []byte) {
	if c.out.Load() < meeting.FirstLen {
		c.firstOut.add(b)
	}
	c.out.Add(uint64(len(b)))
}

// turn counts an exchange, at the end of a Write: the next Read takes the next step, while the peer has something to
// do.
func (c *Conn) turn() {
	if c.got.Load() {
		c.got.Store(false)
		c.turns.Add(1)
	}
}

func (c *Conn) score() uint64 { return trigger.Score(c.turns.Load(), c.in.Load()+c.out.Load()) }

// due reports whether step has something to do.
func (c *Conn) due() bool { return c.policy != nil && c.score() >= c.next.Load() }

// step takes the next step towards a segment, and reports whether there is one.
func (c *Conn) step() bool {
	if !c.stepMu.TryLock() {
		return false
	}
	defer c.stepMu.Unlock()
	if c.is(closed) || c.linked.Load() != nil {
		return false
	}
	now, score := time.Since(epoch), c.score()
	if !c.learned && score >= 2*trigger.Pays {
		c.learn(true)
	}
	do, next := c.trigger.Next(score, now)
	c.next.Store(next)
	var err error
	switch do {
	case trigger.Invite:
		if err = c.prepare(); err == nil {
			c.meeting, err = meeting.Invite(&c.ends)
		}
	case trigger.Seek:
		if err = c.prepare(); err == nil {
			c.meeting, err = meeting.Seek(&c.ends, c.facts())
		}
	case trigger.Wait:
		err = c.meet()
	case trigger.Abandon: // unless the peer has come in the last moment
		if err = c.meet(); err == nil && c.meeting != nil {
			err = errNobody
		}
	default:
		return false
	}
	switch {
	case err != nil:
		step("meeting failed")
		c.over(err)
	case c.linked.Load() != nil:
		return true
	case c.meeting != nil && do != trigger.Wait:
		step("met")
		c.trigger.Met(score, now)
		c.next.Store(score + 1)
		monitor.add(c)
	}
	return false
}

var errNobody = errors.New("peer does not share memory")

// prepare asks whether the connection may move, and fills in what a meeting must know about it.
func (c *Conn) prepare() error {
	if c.policy.Admit != nil {
		if err := c.policy.Admit(); err != nil {
			return err
		}
	}
	if c.ends.TCP != nil {
		return nil
	}
	at := func(a net.Addr) netip.AddrPort { return a.(*net.TCPAddr).AddrPort() }
	c.ends.Dialler, c.ends.Acceptor, c.ends.Allow = at(c.LocalAddr()), at(c.RemoteAddr()), c.policy.Allow
	if !c.dialled {
		c.ends.Dialler, c.ends.Acceptor = c.ends.Acceptor, c.ends.Dialler
	}
	var err error
	c.ends.TCP, err = c.tcp.SyscallConn()
	return err
}

func (c *Conn) facts() meeting.Facts {
	return meeting.Facts{
		FirstIn: c.firstIn.bytes(), FirstOut: c.firstOut.bytes(),
		Inherited: c.firstOut.n.Load()&sealed != 0,
	}
}

// meet goes on with the meeting.
func (c *Conn) meet() error {
	seg, socket, err := c.meeting.Step(c.facts())
	if err != nil || seg == nil {
		return err
	}
	c.meeting = nil
	c.trigger.Over(true)
	return c.attach(seg, socket)
}

// over ends a meeting that has failed. stepMu is held.
func (c *Conn) over(err error) {
	c.endMeeting()
	c.why.Store(&err)
	c.trigger.Over(false)
}

func (c *Conn) endMeeting() {
	if c.meeting != nil {
		c.meeting.Close()
		c.meeting = nil
	}
}

// learn tells what the connection shows about its address. stepMu is held.
func (c *Conn) learn(long bool) {
	c.learned = true
	if c.policy.Learn != nil {
		c.policy.Learn(long)
	}
}

// stopMoving ends a meeting when the connection is closed.
func (c *Conn) stopMoving() {
	c.stepMu.Lock()
	defer c.stepMu.Unlock()
	c.endMeeting()
	c.next.Store(math.MaxUint64)
	if c.policy != nil && !c.learned && c.score() < trigger.Pays {
		c.learn(false)
	}
}

// stay keeps the connection on TCP for good: something else uses its socket.
func (c *Conn) stay(why error) {
	c.why.Store(&why)
	c.stepMu.Lock()
	defer c.stepMu.Unlock()
	c.trigger.Never()
	c.endMeeting()
	c.next.Store(math.MaxUint64)
}

// cameHome lets the connection count again, once both directions are on TCP.
func (c *Conn) cameHome() {
	if c.policy == nil {
		return
	}
	c.stepMu.Lock()
	defer c.stepMu.Unlock()
	c.next.Store(c.trigger.Restart(c.score(), time.Since(epoch)))
}
