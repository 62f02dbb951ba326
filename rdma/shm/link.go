//go:build linux

package shm

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gosdp/gosdp/internal/bubble"
	"github.com/gosdp/gosdp/internal/spin"
	"github.com/gosdp/gosdp/rdma"
)

// link is what a channel is made of: the Unix socket, the memory, and who is at
// the other end. Queue pairs come and go on it, one at a time.
//
// When both ends have closed theirs in good order, the link serves the next
// connection of the two processes. Whoever has closed puts it into a pool, and
// says so in the shared memory (left); from then on that end touches nothing of
// it. The end that dials looks whether the other one has left too. Then the area
// is its alone: it makes it as new, with new keys, so that nothing of the old
// connection is taken for a record of the new one; writes the hash of a ticket
// there, and shows the ticket to the other end with its next Request. That one
// looks it up, begins the next use (taken), and answers. So a ticket is good once, and
// only from who can write this memory.
type link struct {
	conn     *os.File
	area     *area
	way      int      // of the area, outwards: 0 at the end that dials
	pid, uid int      // of the peer; pid is 0 in another pid namespace
	reach    bool     // each end can read the other's memory
	zeroCopy bool     // this end's program asked for that
	id       [16]byte // the token that it was opened with: only the two ends know it
	at       string   // how the peer was found, at the end that dials
	pool     *pool    // where it goes; nil: nowhere
	cfg      rdma.StepConfig

	// Of the end that uses it, or of the pool.
	uses  uint32
	spin  spin.Waiter // goes from one use to the next
	big   bool        // the big rings may hold pages
	since time.Time
}

const (
	linkTime  = time.Second / 2 // for which one is kept
	mostLinks = 64              // in a pool,
	mostAt    = 4               // and for one address
)

// begin makes the queue pair of the next use, with which the link belongs to it.
func (l *link) begin(cfg rdma.StepConfig, ord int) (*QueuePair, error) {
	l.uses++
	peer := 0
	if l.reach {
		peer = l.pid
	}
	q, err := newQueuePair(l.conn, l.area, l.way, peer, Config{IRD: cfg.IRD, ORD: ord})
	if err != nil {
		l.end()
		return nil, err
	}
	// The end that dials is about to ask, and the other one to answer: each connection
	// speaks for spinning, until that has been in vain.
	l.spin.Hope()
	q.link, q.rx.spin = l, l.spin
	q.SetBusyPoll(0)
	q.ProvideReceive(cfg.Buffers, cfg.BufSize)
	return q, nil
}

// leave is the end of a queue pair that was closed in good order, in which
// nobody is any more.
func (l *link) leave(q *QueuePair) {
	l.spin = q.rx.spin
	l.big = l.big || q.tx.ring.base != 0 || q.rx.in.base != 0
	if !l.pool.put(l) {
		l.end()
	}
}

// quit has everyone leave who is parked, without closing the socket.
func (b *doorbell) quit() {
	b.dead.Store(true)
	b.rouseAll()
}

// end ends the link: the peer sees that the socket is closed.
func (l *link) end() {
	l.conn.Close()
	l.area.unmap()
}

func (l *link) mine() *direction   { return &l.area.ctl.ways[l.way] }
func (l *link) theirs() *direction { return &l.area.ctl.ways[1-l.way] }

// left reports that the peer has left its last use.
func (l *link) left() bool { return l.theirs().left.Load() == l.uses }

// alive takes what is left of the bell, and reports whether the peer is there.
func (l *link) alive() bool {
	rc, err := l.conn.SyscallConn()
	if err != nil {
		return false
	}
	gone := true
	err = rc.Control(func(fd uintptr) {
		drain(fd)
		gone = hungUp(fd)
	})
	l.conn.SetReadDeadline(time.Time{})
	return err == nil && !gone
}

// pool keeps links between their uses. Its zero value is ready to use, and safe
// for concurrent use.
type pool struct {
	mu      sync.Mutex
	closed  bool
	links   []*link     // the longest idle first
	alarm   *time.Timer // at the end of the first one's time; nil: not set
	workers sync.WaitGroup
}

// dialled are the links that this process has dialled.
var dialled pool

// put adds a link, in the place of an older one if there is no room, and tells the
// peer that this end has left it: under the lock, since whoever takes it may end
// it at once.
func (p *pool) put(l *link) bool {
	if bubble.Inside() { // its timers are not for others, nor others' for it
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	same := func(other *link) bool { return l.at != "" && other.at == l.at }
	switch first, n := p.count(same); {
	case n >= mostAt:
		p.drop(first)
	case len(p.links) >= mostLinks:
		p.drop(0)
	}
	l.since = time.Now()
	p.links = append(p.links, l)
	l.mine().left.Store(l.uses)
	p.watch()
	return true
}

// count returns how many links there are of a kind, and the first one. Called
// with mu held.
func (p *pool) count(kind func(*link) bool) (first, n int) {
	for i := len(p.links) - 1; i >= 0; i-- {
		if kind(p.links[i]) {
			first, n = i, n+1
		}
	}
	return first, n
}

// drop ends the i-th link. Called with mu held.
func (p *pool) drop(i int) {
	p.links[i].end()
	p.links = slices.Delete(p.links, i, i+1)
}

// take takes the newest link that fits and whose peer lives. Others that fit it
// ends.
func (p *pool) take(fits func(*link) bool) *link {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := len(p.links) - 1; i >= 0; i-- {
		l := p.links[i]
		if !fits(l) {
			continue
		}
		p.links = slices.Delete(p.links, i, i+1)
		if l.alive() {
			return l
		}
		l.end()
	}
	return nil
}

// watch sets the alarm for the first link. Called with mu held.
func (p *pool) watch() {
	if p.alarm != nil || len(p.links) == 0 || p.closed {
		return
	}
	p.workers.Add(1)
	p.alarm = time.AfterFunc(time.Until(p.links[0].since.Add(linkTime)), func() {
		defer p.workers.Done()
		p.mu.Lock()
		defer p.mu.Unlock()
		p.alarm = nil
		for len(p.links) > 0 && time.Since(p.links[0].since) >= linkTime {
			p.drop(0)
		}
		p.watch()
	})
}

// empty ends the links that are in the pool.
func (p *pool) empty() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.links {
		l.end()
	}
	p.links = nil
}

// close empties the pool, for good.
func (p *pool) close() {
	p.mu.Lock()
	p.closed = true
	if p.alarm != nil && p.alarm.Stop() {
		p.workers.Done()
	}
	p.mu.Unlock()
	p.empty()
	p.workers.Wait()
}

// CloseIdle ends the channels that are kept, for a moment, for the next dial.
func CloseIdle() { dialled.empty() }

// Idle takes a channel that has served a connection; see rdma.Offerer.
func (device) Idle(at string, cfg rdma.StepConfig) rdma.Offer {
	if bubble.Inside() {
		return nil
	}
	l := dialled.take(func(l *link) bool {
		return l.at == at && l.zeroCopy == cfg.ZeroCopy && allowed(l.uid, cfg.UIDs) == nil && l.left()
	})
	if l == nil {
		return nil
	}
	if l.big {
		giveBack(l.area.big(0))
		giveBack(l.area.big(1))
		l.big = false
	}
	l.area.renew()
	l.cfg = cfg
	i := &idle{link: l}
	copy(i.ticket[:], l.id[:])
	l.area.issue(i.ticket[len(l.id):])
	return i
}

// idle is a link that has been offered to the peer.
type idle struct {
	link   *link
	ticket rdma.Ticket
}

// Ticket returns what the peer is to be shown.
func (i *idle) Ticket() rdma.Ticket { return i.ticket }

// Prepare has nothing to do.
func (i *idle) Prepare() {}

// taken reports that the peer has begun the next use.
func (i *idle) taken() bool { return i.link.theirs().taken.Load() == i.link.uses+1 }

// Take goes on over the link. That the peer has taken it stands in the memory:
// the process that answers the Request may be another than the one that has the link.
func (i *idle) Take(_ context.Context, ord int) (rdma.QueuePair, error) {
	l := i.link
	if !i.taken() {
		return nil, errors.New("shm: the peer has not resumed the channel")
	}
	q, err := l.begin(l.cfg, ord)
	if err != nil {
		return nil, err
	}
	return q, nil
}

// Drop ends the link.
func (i *idle) Drop() { i.link.end() }

// Resume takes the link that the ticket names; see rdma.OfferedPlace.
func (p *place) Resume(peer rdma.Peer, t rdma.Ticket, ord int) (rdma.QueuePair, error) {
	l := p.links.take(func(l *link) bool {
		return [16]byte(t[:len(l.id)]) == l.id && (peer.PID == 0 || peer.PID == l.pid)
	})
	if l == nil {
		return nil, errors.New("shm: the channel is not kept any more")
	}
	if !l.area.issued(t[len(l.id):]) {
		l.end()
		return nil, errors.New("shm: the ticket is not the channel's")
	}
	q, err := l.begin(p.cfg, ord)
	if err != nil {
		return nil, err
	}
	l.mine().taken.Store(l.uses)
	return q, nil
}

// renew makes the control as new. Nobody else uses it.
func (a *area) renew() {
	for i := range a.ctl.ways {
		d := &a.ctl.ways[i]
		d.idle.Store(0)
		d.state.Store(stateOpen)
		d.turn.Store(0)
		d.rang.Store(0)
		d.head.Store(0)
		d.full.Store(0)
		d.written.Store(0)
		d.read.Store(0)
		for slot := range maxReads { // few connections read, and to look costs less
			if d.granted[slot].Load() != 0 {
				d.granted[slot].Store(0)
			}
			if d.pulling[slot].Load() != 0 {
				d.pulling[slot].Store(0)
			}
		}
	}
	a.newKeys()
}

// newKeys gives each way a key.
func (a *area) newKeys() {
	var keys [8 * len(a.ctl.ways)]byte
	rand.Read(keys[:])
	for i := range a.ctl.ways {
		a.ctl.ways[i].key.Store(binary.NativeEndian.Uint64(keys[8*i:]))
	}
}

// issue fills the second half of a ticket, and notes its hash in the area.
func (a *area) issue(b []byte) {
	rand.Read(b)
	store(&a.ctl.ticket, hashed(b))
}

// issued reports that b is the second half of the ticket that the area notes.
func (a *area) issued(b []byte) bool { return load(&a.ctl.ticket) == hashed(b) }

// hashed is half of the hash of b.
func hashed(b []byte) [2]uint64 {
	sum := sha256.Sum256(b)
	return twoWords(sum[:])
}

func twoWords(b []byte) [2]uint64 {
	return [2]uint64{binary.NativeEndian.Uint64(b), binary.NativeEndian.Uint64(b[8:])}
}

func load(w *[2]atomic.Uint64) [2]uint64 { return [2]uint64{w[0].Load(), w[1].Load()} }

func store(w *[2]atomic.Uint64, to [2]uint64) {
	w[0].Store(to[0])
	w[1].Store(to[1])
}
