//go:build linux

package shm

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"net/netip"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gosdp/gosdp/internal/bubble"
	"github.com/gosdp/gosdp/internal/shmdir"
	"github.com/gosdp/gosdp/internal/spin"
	"github.com/gosdp/gosdp/rdma"
)

// link is a channel without its queue pair: the Unix socket, the memory, and the identity of the
// peer. It has at most one queue pair at a time.
//
// After both ends have closed their queue pairs in good order, the link serves the next connection
// of the two processes. An end that has closed puts its link into a pool and says so in the shared
// memory (left); from then on it does not access that memory. The end that dials checks that the
// other one has left too. The area then belongs to it alone. It resets the area with new keys, so
// that no record of the old connection is taken for one of the new. It writes the hash of a ticket
// there, and sends the ticket with its next Request. The other end looks up the ticket, begins the
// next use (taken), and replies. A ticket is therefore valid once, and only from a process that can
// write this memory.
type link struct {
	conn     *os.File
	area     *area
	way      int        // the direction that this end writes: 0 at the end that dials
	pid, uid int        // of the peer; pid is 0 in another pid namespace
	reach    bool       // each end can read the other's memory
	zeroCopy bool       // this end's program asked for that
	id       [16]byte   // the token with which it was opened; only the two ends know it
	at       string     // the address of the peer, at the end that dials
	from     netip.Addr // and at the end that listens
	pool     *pool      // keeps it between uses; nil: it is not kept
	cfg      rdma.ChannelConfig

	// These belong to the queue pair, or to the pool between uses.
	uses  uint32
	spin  spin.Waiter // passed from one use to the next
	big   bool        // the big rings may hold pages
	since time.Time
	late  bool // it is kept longer than linkTime, because it carries a claim
}

const (
	mostLinks = 64 // in a pool,
	mostAt    = 4  // and for one address
)

// linkTime is how long a link is kept. It is a variable for tests.
var linkTime = time.Second / 2

// begin returns the queue pair of the next use, which owns the link from then on.
func (l *link) begin(cfg rdma.ChannelConfig, ord int) (*QueuePair, error) {
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
	// A request and its response are likely now, so polling is tried on each new connection
	// until it has been in vain.
	l.spin.Hope()
	q.link, q.rx.spin = l, l.spin
	q.SetBusyPoll(0)
	q.bell.pair(l.pid)
	q.ProvideReceive(cfg.Buffers, cfg.BufSize)
	return q, nil
}

// leave ends a use. The queue pair was closed in good order, and no goroutine uses it.
func (l *link) leave(q *QueuePair) {
	l.spin = q.rx.spin
	l.big = l.big || q.tx.ring.base != 0 || q.rx.in.base != 0
	if !l.pool.put(l) {
		l.end()
	}
}

// quit makes all parked goroutines return, without closing the socket.
func (b *doorbell) quit() {
	b.dead.Store(true)
	b.rouseAll()
}

// end ends the link. The peer sees that the socket is closed.
func (l *link) end() {
	l.conn.Close()
	l.area.unmap()
}

func (l *link) mine() *direction   { return &l.area.ctl.ways[l.way] }
func (l *link) theirs() *direction { return &l.area.ctl.ways[1-l.way] }

// left reports whether the peer has left its last use.
func (l *link) left() bool { return l.theirs().left.Load() == l.uses }

// alive reads the doorbell's remaining bytes, and reports whether the peer still has the link.
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

// pool keeps links between uses. The zero value is an empty pool. It is safe for concurrent
// use.
type pool struct {
	mu      sync.Mutex
	closed  bool
	refuses bool        // claims
	links   []*link     // the longest idle first
	alarm   *time.Timer // when the time of the first one ends; nil: not set
	workers sync.WaitGroup
}

// dialled are the links that this process has dialled.
var dialled pool

// put adds a link, and reports whether it did. If there are too many, it drops an older one. It
// tells the peer that this end has left the link while it holds the lock, because another goroutine
// may take the link and end it as soon as the lock is released.
func (p *pool) put(l *link) bool {
	if bubble.Inside() { // the pool's timer must not be shared with goroutines outside the bubble
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
		p.drop(max(0, slices.IndexFunc(p.links, (*link).unclaimed)))
	}
	l.since, l.late = time.Now(), false
	p.links = append(p.links, l)
	l.takeClaims(!p.refuses)
	l.mine().left.Store(l.uses)
	p.watch()
	return true
}

// count returns the number of links of a kind, and the index of the first. The caller must hold mu.
func (p *pool) count(kind func(*link) bool) (first, n int) {
	for i := len(p.links) - 1; i >= 0; i-- {
		if kind(p.links[i]) {
			first, n = i, n+1
		}
	}
	return first, n
}

// drop ends the i-th link. The caller must hold mu.
func (p *pool) drop(i int) {
	p.links[i].end()
	p.links = slices.Delete(p.links, i, i+1)
}

// take removes and returns the newest link that fits and whose peer lives, or nil. It ends the
// links that fit and whose peer does not.
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

// watch sets the alarm for the first link. The caller must hold mu.
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
			if !p.extend() {
				p.drop(0)
			}
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

// close empties the pool, which keeps no links afterwards.
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

// CloseIdle ends the channels that this process keeps for later dials.
func CloseIdle() { dialled.empty() }

// Idle returns a channel that has served a connection, or nil; see rdma.Offerer.
func (device) Idle(at string, cfg rdma.ChannelConfig) rdma.Offer {
	if bubble.Inside() {
		return nil
	}
	l := dialled.take(func(l *link) bool {
		return l.at == at && l.zeroCopy == cfg.ZeroCopy && shmdir.MayMeet(l.uid, os.Geteuid(), cfg.UIDs) == nil && l.left()
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
	l.area.issue(i.ticket[len(l.id):][:nameLen])
	return i
}

// idle is the offer of a link that has served a connection.
type idle struct {
	link   *link
	ticket rdma.Ticket
	port   uint16 // of the connection that is claimed
}

// Ticket returns the ticket for the Request.
func (i *idle) Ticket() rdma.Ticket { return i.ticket }

// Prepare does nothing.
func (i *idle) Prepare() {}

// taken reports whether the peer has begun the next use.
func (i *idle) taken() bool { return i.link.theirs().taken.Load() == i.link.uses+1 }

// Take begins the next use of the link. It checks in the memory that the peer has begun it too,
// because the process that replies to the Request may not be the one that has the link.
func (i *idle) Take(ord int) (rdma.QueuePair, error) {
	l := i.link
	if !i.taken() {
		return nil, errors.New("shm: peer did not resume the channel")
	}
	q, err := l.begin(l.cfg, ord)
	if err != nil {
		return nil, err
	}
	return q, nil
}

// Drop ends the link.
func (i *idle) Drop() { i.link.end() }

// Resume begins the next use of the link that the ticket names; see rdma.OfferListener.
func (p *place) Resume(peer rdma.Peer, t rdma.Ticket, ord int) (rdma.QueuePair, error) {
	l := p.links.take(func(l *link) bool {
		return [16]byte(t[:len(l.id)]) == l.id && (peer.PID == 0 || peer.PID == l.pid)
	})
	if l == nil {
		return nil, errors.New("shm: cannot resume the channel: it has expired")
	}
	if !l.area.issued(t[len(l.id):][:nameLen]) {
		l.end()
		return nil, errors.New("shm: cannot resume the channel: wrong ticket")
	}
	l.from = peer.Remote.Addr()
	q, err := l.begin(p.cfg, ord)
	if err != nil {
		return nil, err
	}
	l.mine().taken.Store(l.uses)
	return q, nil
}

// renew resets the control page. No other goroutine or process may be using it.
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
		for slot := range maxReads { // most are 0, and a load costs less than a store
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

// newKeys gives each direction a new key.
func (a *area) newKeys() {
	var keys [8 * len(a.ctl.ways)]byte
	rand.Read(keys[:])
	for i := range a.ctl.ways {
		a.ctl.ways[i].key.Store(binary.NativeEndian.Uint64(keys[8*i:]))
	}
}

// issue fills a part of a ticket and writes its hash to the area.
func (a *area) issue(b []byte) {
	rand.Read(b)
	store(&a.ctl.ticket, hashed(b))
}

// issued reports whether b is the part of the ticket whose hash is in the area.
func (a *area) issued(b []byte) bool { return load(&a.ctl.ticket) == hashed(b) }

// hashed returns the first half of the SHA-256 of b.
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
