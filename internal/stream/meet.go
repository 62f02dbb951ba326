//go:build linux

package stream

import (
	"errors"
	"math"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/gosdp/gosdp/internal/lockorder"
	"github.com/gosdp/gosdp/internal/meeting"
	"github.com/gosdp/gosdp/internal/shm"
	"github.com/gosdp/gosdp/internal/trigger"
)

// mover brings a connection together with its peer, in the calls of the program.
type mover struct {
	policy   *Policy // nil: the connection never moves by itself
	dialled  bool
	restless bool
	got      atomic.Bool   // a Read has returned bytes since the last Write
	polled   polled        // whether the program waits on the descriptor itself
	turns    atomic.Uint64 // Writes after a Read
	next     atomic.Uint64 // the score at which step has something to do

	firstIn, firstOut first
	moments           *meeting.Moments // nil: the ends are in one network namespace

	stepMu  lockorder.Mutex[lockorder.StreamStep] // taken after rmu and wmu
	learned bool
	stays   bool  // the connection stays on TCP, as why says
	meets   int16 // calls of Meet in progress
	moves   atomic.Uint32
	trigger trigger.Trigger
	meeting *meeting.Meeting      // while there is one, the budget is charged with shm.Cost
	why     atomic.Pointer[error] // why the connection is on TCP; nil: nothing has hindered it
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

// Move makes the connection move to shared memory when that pays. dialled says which of the ends this is. Move must be
// called before the connection is used.
func (c *Conn) Move(dialled bool, p *Policy) {
	c.policy, c.dialled, c.restless = p, dialled, p.Restless
	if e := c.ends(); e.Apart() {
		c.moments = new(meeting.Moments)
	}
	at := trigger.Pays
	switch {
	case p.Restless:
		at = 1
	case p.At != nil:
		at = p.At(dialled, c.acceptor())
	}
	c.next.Store(c.trigger.Start(dialled, at, time.Since(epoch)))
}

// Expect looks for the dialler of an accepted connection while that is young: it may be in Meet, and send nothing.
func (c *Conn) Expect() { children.add(c, int64(time.Since(epoch))) }

// acceptor returns the address at which the connection was accepted.
func (c *Conn) acceptor() netip.AddrPort {
	if c.dialled {
		return addrPort(c.RemoteAddr())
	}
	return addrPort(c.LocalAddr())
}

func addrPort(a net.Addr) netip.AddrPort { return a.(*net.TCPAddr).AddrPort() }

// fidget brings a restless connection home, every few calls once a direction has moved, and else seldom.
func (c *Conn) fidget() {
	every := uint32(8)
	if c.Device() != "shm" {
		every = 100
	}
	if rand.Uint32N(every) == 0 {
		c.Leave()
	}
}

// Moves returns how often the connection has moved.
func (c *Conn) Moves() uint64 { return uint64(c.moves.Load()) }

// Why returns why the connection is on TCP; nil: it is in shared memory.
func (c *Conn) Why() error {
	if c.Device() == "shm" {
		return nil
	}
	if err := c.why.Load(); err != nil {
		return *err
	}
	switch {
	case c.policy == nil:
		return errNoPolicy
	case c.polled.yes():
		return errPolled
	}
	return errQuiet
}

var (
	errQuiet   = errors.New("too little traffic")
	errIdle    = errors.New("connection was idle")
	errPolled  = errors.New("program polls the connection's descriptor")
	errNobody  = errors.New("peer does not share memory")
	errGiven   = errors.New("program has asked for the connection's descriptor")
	errShared  = errors.New("connection's socket is used elsewhere, too")
	errAltered = errors.New("connection's socket has a filter or an upper layer protocol (TCP_ULP)")
	errMemory  = errors.New("memory budget is used up; raise SDP_MEMORY")
)

// received counts bytes that a Read has taken from TCP.
func (c *Conn) received(b []byte) {
	if len(b) == 0 {
		return
	}
	if c.in.Load() < meeting.FirstLen {
		c.firstIn.add(b)
	}
	c.moments.Read(c.in.Add(uint64(len(b))))
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

// sentUnseen counts n bytes, of which only the first are known.
func (c *Conn) sentUnseen(first []byte, n int64) {
	if c.out.Load() < meeting.FirstLen {
		c.firstOut.add(first)
		if n > int64(len(first)) {
			c.firstOut.seal()
		}
	}
	c.out.Add(uint64(n))
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
	c.learnLong()
	do, next := c.trigger.Next(score, now)
	c.next.Store(next)
	var err error
	switch do {
	case trigger.Invite, trigger.Seek:
		if err = c.begin(); err == meeting.ErrEarly {
			return false
		}
		if err == nil && c.meeting == nil {
			c.why.CompareAndSwap(nil, &errNobody)
		}
	case trigger.Wait:
		err = c.meet()
	case trigger.Abandon: // unless the peer has come in the last moment
		if err = c.meet(); err == nil && c.meeting != nil && c.meets == 0 {
			err = c.nobodyLocked()
			c.learn(trigger.Vain)
		}
	}
	if err != nil {
		c.meetingFailed(err)
	}
	return c.linked.Load() != nil
}

// begin begins a meeting, if the peer is there or need not be. stepMu is held.
func (c *Conn) begin() (err error) {
	if p := c.policy.Sandboxed; p != nil {
		if err := p(); err != nil {
			return err
		}
	}
	e := c.ends()
	if e.TCP, err = c.tcp.SyscallConn(); err != nil {
		return err
	}
	var m *meeting.Meeting
	if !c.dialled {
		if m, err = meeting.Seek(e, c.facts()); err != nil {
			return err
		}
		if m == nil {
			return nil
		}
	}
	if err = c.policy.admit(); err == nil && c.dialled {
		if m, err = meeting.Invite(e, c.facts()); err != nil {
			c.policy.give(shm.Cost)
		}
	}
	if err != nil {
		if m != nil {
			m.Close()
		}
		return err
	}
	c.meeting = m
	atStep("met")
	score := c.score()
	c.trigger.Begin(score, time.Since(epoch))
	c.next.Store(score + 1)
	monitor.add(c)
	return nil
}

// take asks a policy, which may be nil, for memory.
func (p *Policy) take(bytes int) bool { return p == nil || p.Take == nil || p.Take(bytes) }

// admit charges the budget for a segment, unless this process should not share memory for another connection.
func (p *Policy) admit() error {
	if p.Admit != nil {
		if err := p.Admit(); err != nil {
			return err
		}
	}
	if !p.take(shm.Cost) {
		return errMemory
	}
	return nil
}

func (p *Policy) give(bytes int) {
	if p != nil && p.Give != nil && bytes > 0 {
		p.Give(bytes)
	}
}

func (c *Conn) ends() meeting.Ends {
	e := meeting.Ends{Dialler: addrPort(c.LocalAddr()), Acceptor: addrPort(c.RemoteAddr()), Allow: c.policy.Allow, Dir: c.policy.Dir}
	if !c.dialled {
		e.Dialler, e.Acceptor = e.Acceptor, e.Dialler
	}
	return e
}

func (c *Conn) facts() meeting.Facts {
	return meeting.Facts{
		FirstIn: c.firstIn.bytes(), FirstOut: c.firstOut.bytes(),
		Inherited: c.firstOut.n.Load()&sealed != 0, Moments: c.moments,
	}
}

// meet goes on with the meeting. stepMu is held.
func (c *Conn) meet() error {
	seg, socket, err := c.meeting.Step(c.facts())
	if err != nil || seg == nil {
		return err
	}
	c.meeting = nil
	c.trigger.End(true)
	c.why.Store(nil)
	c.learn(trigger.Met)
	return c.attach(seg, socket, shm.Cost)
}

func (c *Conn) isMeeting() bool {
	c.stepMu.Lock()
	defer c.stepMu.Unlock()
	return c.meeting != nil
}

// meetingFailed ends a meeting that has failed. stepMu is held.
func (c *Conn) meetingFailed(err error) {
	atStep("meeting failed")
	c.endMeeting()
	c.why.Store(&err)
	c.trigger.End(c.restless)
}

func (c *Conn) endMeeting() {
	if c.meeting != nil {
		c.meeting.Close()
		c.meeting = nil
		c.policy.give(shm.Cost)
	}
}

// learn tells what the connection shows about its address. stepMu is held.
func (c *Conn) learn(lesson trigger.Lesson) {
	if c.policy.Learn != nil {
		c.policy.Learn(c.dialled, c.acceptor(), lesson)
	}
}

// stopMoving ends a meeting when the connection is closed.
func (c *Conn) stopMoving() {
	c.stepMu.Lock()
	defer c.stepMu.Unlock()
	if c.meeting != nil && c.dialled {
		c.learn(trigger.Vain)
	}
	c.endMeeting()
	c.next.Store(math.MaxUint64)
	if c.policy == nil {
		return
	}
	if c.learnLong(); !c.learned && c.score() < trigger.Pays {
		c.learn(trigger.Short)
	}
}

// learnLong tells once that the connection has lived for long. stepMu is held.
func (c *Conn) learnLong() {
	if !c.learned && c.score() >= 2*trigger.Pays {
		c.learned = true
		c.learn(trigger.Long)
	}
}

// stay keeps the connection on TCP for good: something else uses its socket.
func (c *Conn) stay(why error) {
	c.stepMu.Lock()
	defer c.stepMu.Unlock()
	c.why.Store(&why)
	c.trigger.Never()
	c.stays = true
	c.endMeeting()
	c.next.Store(math.MaxUint64)
}

// crowded makes the connection move later, because it comes home for want of memory.
func (c *Conn) crowded() {
	c.stepMu.Lock()
	defer c.stepMu.Unlock()
	c.why.Store(&errMemory)
	c.trigger.Dearer()
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
