package engine

import (
	"sync"

	"github.com/gosdp/gosdp/internal/bubble"
	"github.com/gosdp/gosdp/rdma"
)

// poller receives a connection's completions by the leader/followers pattern.
//
// At most one goroutine at a time, the leader, is in QueuePair.Wait. It may be a Read, a
// Write without credit, a Close, or the background poller. The other goroutines that wait
// for news, the followers, wait on cond. The leader signals it after each batch of
// completions and when it stops leading. A follower that then finds no leader takes over.
//
// The background poller is a goroutine that leads while no call does, so that the library
// answers the peer even if the program does nothing. It starts when nobody has polled for a
// tick of the idle monitor, or when a Write waits for the device. A Read would be delayed by
// a second wake-up if it followed the background poller, so it makes it stop (claims).
//
// Guarded by Conn.mu.
type poller struct {
	conn *Conn
	cond bubble.Cond // of the followers

	claims   int32  // calls that want to lead instead of the background poller
	polled   uint32 // grows each time that the device has been polled
	activity uint32 // grows with each batch of completions, and with what Writes post

	unhandled  int8 // completions of the current batch that were not handled yet
	leader     leader
	background background
	inRoom     bool // a call waits for the device to have room

	few  [2]rdma.Completion // the leader waits with these,
	many *completions       // or with these if more have arrived lately
}

// completions are what a leader receives at a time on a busy connection. They come from a
// pool, so that an idle connection has only two.
type completions [8]rdma.Completion

var completionsPool = sync.Pool{New: func() any { return new(completions) }}

// pollRounds is how many batches are received without waiting before the caller gets on: a
// peer could keep sending.
const pollRounds = 8

// waitReleasing waits for news: as the leader if there is none, otherwise as a follower.
func (p *poller) waitReleasing() {
	if p.leader != nobody {
		p.followReleasing()
	} else {
		p.leadReleasing()
	}
}

// waitAsLeaderReleasing is waitReleasing for a call that must not be delayed by following the
// background poller, which it makes stop.
func (p *poller) waitAsLeaderReleasing() {
	if p.leader == nobody || p.background == absent {
		p.waitReleasing()
		return
	}
	p.claims++
	if p.leader == parked {
		p.conn.qp.Wake()
	}
	p.waitReleasing()
	p.claims--
}

// followReleasing waits until another goroutine of this connection calls broadcastLocked. It
// never leads.
func (p *poller) followReleasing() { p.cond.Wait(&p.conn.mu) }

// leadReleasing leads until there are completions, it is woken, or nothing more will arrive.
func (p *poller) leadReleasing() {
	c := p.conn
	p.leader.park()
	c.mu.Unlock()
	wcs := p.few[:]
	if p.many != nil {
		wcs = p.many[:]
	}
	n, err := c.qp.Wait(wcs)
	c.mu.Lock()
	p.leader.unpark()
	p.handleLocked(wcs[:n], err)
	if p.many == nil && n == len(p.few) { // there may be more; answers come one at a time
		p.many = completionsPool.Get().(*completions)
		c.mu.Unlock()
		n, err = c.qp.Poll(p.many[:])
		c.mu.Lock()
		p.handleLocked(p.many[:n], err)
	}
	if p.many != nil && n <= len(p.few) {
		completionsPool.Put(p.many)
		p.many = nil
	}
	if c.out.due.Load() {
		c.mu.Unlock()
		c.out.sendDue()
		c.mu.Lock()
	}
	c.ackReleasing()
	p.leader.resign()
	p.broadcastLocked()
	idleMonitor.watchLocked(c)
}

// receiveReadyReleasing leads without waiting: it receives what is there, up to pollRounds
// batches. There must be no leader.
func (p *poller) receiveReadyReleasing() {
	c := p.conn
	p.leader.poll()
	wcs := completionsPool.Get().(*completions)
	defer completionsPool.Put(wcs)
	for range pollRounds {
		c.mu.Unlock()
		n, err := c.qp.Poll(wcs[:])
		c.mu.Lock()
		p.handleLocked(wcs[:n], err)
		if n == 0 || err != nil {
			break
		}
	}
	c.ackReleasing()
	p.leader.resign()
	p.broadcastLocked()
}

// ackReleasing has the kernel acknowledge what has arrived, if that is due. It releases mu for
// that, because the program's own type of TCP connection may block.
func (c *Conn) ackReleasing() {
	if !c.ackDue {
		return
	}
	c.ackDue = false
	c.mu.Unlock()
	c.ackNow()
	c.mu.Lock()
}

// receiveArrivedReleasing receives what had arrived when it was called. If a call other than the
// background poller leads and continues to lead, that call receives it; it may have looked just
// before. On a closed connection it does nothing, because Close leads there without looking for a leader.
func (p *poller) receiveArrivedReleasing() {
	p.claims++
	for first := p.polled; p.leader != nobody && p.polled-first < 2 && !p.conn.phase.closed(); {
		if p.leader == parked {
			p.conn.qp.Wake()
		}
		p.followReleasing()
	}
	p.claims--
	if p.leader == nobody && !p.conn.phase.closed() {
		p.receiveReadyReleasing()
		idleMonitor.watchLocked(p.conn)
	}
}

// retireLocked makes the background poller end.
func (p *poller) retireLocked() {
	if p.background == running {
		p.background.retire()
		if p.leader == parked {
			p.conn.qp.Wake()
		}
	}
}

// handleLocked handles what the device has delivered. It does not release mu.
func (p *poller) handleLocked(wcs []rdma.Completion, err error) {
	c := p.conn
	p.polled++
	if len(wcs) > 0 {
		p.activity++
	}
	for i := range wcs {
		p.unhandled = int8(len(wcs) - i - 1)
		c.completedLocked(&wcs[i])
		wcs[i] = rdma.Completion{}
	}
	if err != nil && c.recvErr == nil {
		c.receiveEndedLocked(err)
	}
	c.promise.gather()
}

// broadcastLocked wakes the followers.
func (p *poller) broadcastLocked() { p.cond.Broadcast() }

// wakeAllLocked makes every waiting call check the connection's state again, because a
// deadline has passed or the connection was closed.
func (p *poller) wakeAllLocked() {
	p.broadcastLocked()
	if p.leader == parked {
		p.conn.qp.Wake()
	}
	if p.inRoom {
		p.conn.qp.WakeRoom()
	}
}

// startBackgroundLocked starts the background poller if there is no leader.
func (p *poller) startBackgroundLocked() {
	if p.leader != nobody || p.background != absent || !p.mayPollInBackgroundLocked() {
		return
	}
	p.background.start()
	c := p.conn
	c.workers++
	go func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		for p.claims == 0 && p.background == running && p.mayPollInBackgroundLocked() && p.leader == nobody {
			p.leadReleasing()
		}
		p.background.end()
		c.workerDoneLocked()
	}()
}

// workerDoneLocked notes that a goroutine of the connection ends. A sync.WaitGroup would not do: the
// runtime ends a program that uses one both in a synctest bubble and outside it.
func (c *Conn) workerDoneLocked() {
	c.workers--
	c.poll.broadcastLocked()
}

// awaitWorkersReleasing waits until the connection has no goroutines. It releases mu in between.
func (c *Conn) awaitWorkersReleasing() {
	for c.workers > 0 {
		c.poll.followReleasing()
	}
}

func (p *poller) mayPollInBackgroundLocked() bool {
	return (!p.conn.phase.closed() || p.conn.phase == draining) && p.conn.recvErr == nil
}
