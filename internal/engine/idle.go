package engine

import (
	"time"

	"github.com/gosdp/gosdp/internal/bubble"
	"github.com/gosdp/gosdp/internal/lockorder"
	"github.com/gosdp/gosdp/internal/ticker"
)

const (
	idleTick  = 20 * time.Millisecond
	idleTicks = 100 // ticks until buffers shrink
	restTicks = 16  // ticks until an idle connection is visited less often:
	restPause = 8   // once in this many ticks (a power of two)
)

// idleMonitor looks after connections on which no call is in progress. It is one goroutine
// for all connections, which runs only while it has any to visit, and sleeps until the next
// visit is due. It starts the background poller of a connection that no goroutine has polled
// for a tick, and helps two ends that wait for each other to read. After a while without
// activity, it has the peer shrink buffers that have grown and the device return memory. It
// also finishes connections that were closed (linger.go).
var idleMonitor monitor

type monitor struct {
	mu     lockorder.Mutex[lockorder.IdleMonitor] // taken after any Conn.mu
	conns  map[*Conn]int64                        // and the tick of the next visit
	now    int64                                  // the tick at which run woke
	next   int64                                  // the tick at which it will wake next, while it is awake
	soon   bool                                   // run is awake, or wakes within a tick
	ticker *ticker.Ticker                         // nil if run does not run
}

// idleState is what the monitor knows of a connection. Guarded by Conn.mu.
type idleState struct {
	polled   uint32 // poller.polled at the last tick
	activity uint32 // poller.activity, likewise
	ticks    int32  // for how many it has not changed; for a closed connection, ticks since Close
	listed   bool   // the monitor visits the connection
	enabled  bool   // false in a synctest bubble
}

// watchLocked makes the monitor visit c, unless there is nothing to do for it. If c was idle and
// rests, but has become active, the visit is at the next tick.
func (m *monitor) watchLocked(c *Conn) {
	if !c.idle.enabled || c.phase.closed() || c.recvErr != nil && !c.session.Grown() {
		return
	}
	switch {
	case !c.idle.listed:
		m.addLocked(c)
	case c.idle.ticks >= restTicks && c.idle.activity != c.poll.activity:
		c.idle.ticks = 0
		m.mu.Lock()
		m.conns[c] = 0
		m.wake()
		m.mu.Unlock()
	}
}

// addLocked makes the monitor visit c at the next tick.
func (m *monitor) addLocked(c *Conn) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ticker == nil {
		if bubble.Inside() { // a connection from outside is used in a bubble; its next use outside adds it
			return
		}
		m.ticker, m.soon = ticker.New(), false
		go m.run(m.ticker)
	}
	c.idle = idleState{polled: c.poll.polled, activity: c.poll.activity, enabled: c.idle.enabled, listed: true}
	if m.conns == nil {
		m.conns = make(map[*Conn]int64)
	}
	m.conns[c] = 0
	m.wake()
}

// wake makes run wake at the next tick. The caller holds m.mu.
func (m *monitor) wake() {
	m.next = m.now + 1
	if m.ticker != nil && !m.soon {
		m.sleep(1)
	}
}

// sleep makes run wake after the given number of ticks. The caller holds m.mu.
func (m *monitor) sleep(ticks int64) {
	m.soon = ticks <= 1
	m.ticker.Set(time.Duration(ticks) * idleTick)
}

// removeLocked ends the visits to c.
func (m *monitor) removeLocked(c *Conn) {
	c.idle.listed = false
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.conns, c)
	if len(m.conns) == 0 {
		m.wake() // to end
	}
}

// restLocked lets up to the given number of ticks pass until the next visit to c, and returns how many.
// ticks is a power of two. Connections that rest are visited together, because it is the wake-ups
// that cost, but not all that rest for longer than restPause, because there may be thousands.
func (m *monitor) restLocked(c *Conn, ticks int32) int32 {
	m.mu.Lock()
	defer m.mu.Unlock()
	at := (m.now + int64(ticks)) &^ int64(min(ticks, restPause)-1)
	if _, listed := m.conns[c]; listed {
		m.conns[c] = at
	}
	return int32(at - m.now)
}

// run visits connections until there are none.
func (m *monitor) run(t *ticker.Ticker) {
	defer t.Stop()
	var due []*Conn
	for {
		t.Wait()
		m.mu.Lock()
		if len(m.conns) == 0 {
			m.ticker = nil
			m.mu.Unlock()
			return
		}
		m.now, m.soon = int64(clock()/idleTick), true
		m.next = m.now + lingerMost
		due = due[:0]
		for c, at := range m.conns {
			if at <= m.now {
				due = append(due, c)
			} else {
				m.next = min(m.next, at)
			}
		}
		m.mu.Unlock()
		for _, c := range due {
			m.visit(c)
		}
		m.mu.Lock()
		for _, c := range due {
			if at, listed := m.conns[c]; listed {
				m.next = min(m.next, max(at, m.now+1))
			}
		}
		m.sleep(m.next - m.now)
		m.mu.Unlock()
		clear(due)
	}
}

// visit looks at c once.
func (m *monitor) visit(c *Conn) {
	c.mu.Lock()
	if c.phase.closed() {
		c.mu.Unlock()
		c.closer.visit()
		return
	}
	defer c.out.sendDue()
	defer c.mu.Unlock()
	idle := &c.idle
	polled := c.poll.polled != idle.polled
	idle.polled = c.poll.polled
	if !polled {
		c.poll.startBackgroundLocked()
	}
	if c.poll.activity != idle.activity {
		idle.activity, idle.ticks = c.poll.activity, 0
		return
	}
	idle.ticks++
	c.promise.readAhead()
	if polled {
		return
	}
	if idle.ticks >= restTicks && (!c.out.starved || idle.ticks >= idleTicks) {
		idle.ticks += m.restLocked(c, restPause) - 1
	}
	shrinksLater := idle.ticks < idleTicks && c.qp.Limits().Shrinks
	if idle.ticks >= idleTicks {
		c.session.Idle()
		c.out.checkDueLocked()
		c.qp.Shrink()
	}
	if c.out.starved && c.sendErr == nil && c.session.Posted() <= stuckCredit {
		return // the peer cannot send either, and the budget may have room for readAhead later
	}
	if !c.session.Grown() && !shrinksLater || c.sendErr != nil || idle.ticks >= 2*idleTicks {
		m.removeLocked(c)
	}
}
