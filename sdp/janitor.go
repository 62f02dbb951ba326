package sdp

import (
	"sync"
	"time"

	"github.com/gosdp/gosdp/internal/bubble"
	"github.com/gosdp/gosdp/rdma"
)

// The janitor looks after connections on which no call is in progress: one
// goroutine for all of them, and only while there are any to look after. A
// connection that nobody has polled for a tick gets its attendant; one whose
// peer has enlarged its buffers for us is told to shrink them when we have been
// idle for a while, and its device gives memory back. It also helps two ends
// that wait for each other to read.
const (
	janitorTick = 20 * time.Millisecond
	idleTicks   = 100 // until buffers shrink
	restTicks   = 16  // until an idle connection is visited less often:
	restPause   = 8   // once in so many ticks
)

var janitor struct {
	mu      sync.Mutex      // below every Conn.mu
	conns   map[*conn]int64 // and the tick of the next visit
	now     int64           // ticks
	running bool
}

// watch is what the janitor knows of a connection. Guarded by Conn.mu.
type watch struct {
	polled   uint32 // Conn.polled at the last tick
	activity uint32 // Conn.activity
	idle     int32  // ticks for which it has not changed; since Close, for a closed one
	listed   bool
}

// watchLocked has the janitor look after the connection. Called with mu held.
func (c *conn) watchLocked() {
	if !c.watched || c.watch.listed || c.closed || c.recvErr != nil && !c.session.Source.Grown() {
		return
	}
	c.watch = watch{polled: c.polled, activity: c.activity}
	c.listLocked()
}

// listLocked adds the connection to those that the janitor visits. Called with mu
// held.
func (c *conn) listLocked() {
	c.watch.listed = true
	janitor.mu.Lock()
	defer janitor.mu.Unlock()
	if janitor.conns == nil {
		janitor.conns = make(map[*conn]int64)
	}
	janitor.conns[c] = 0
	if !janitor.running && !bubble.Inside() { // a connection from outside may be used in one
		janitor.running = true
		go sweep()
	}
}

// unwatch takes the connection from the janitor. Called with mu held.
func (c *conn) unwatch() {
	c.watch.listed = false
	janitor.mu.Lock()
	delete(janitor.conns, c)
	janitor.mu.Unlock()
}

// sweep is the janitor's goroutine, which ends when there is nothing to do.
func sweep() {
	tick := newTicker(janitorTick)
	defer tick.stop()
	var due []*conn
	for {
		tick.wait()
		janitor.mu.Lock()
		if len(janitor.conns) == 0 {
			janitor.running = false
			janitor.mu.Unlock()
			return
		}
		janitor.now++
		due = due[:0]
		for c, at := range janitor.conns {
			if at <= janitor.now {
				due = append(due, c)
			}
		}
		janitor.mu.Unlock()
		for _, c := range due {
			c.tick()
		}
		clear(due)
	}
}

// rest has the janitor pass the connection over until so many ticks have gone by.
// Called with mu held.
func (c *conn) rest(ticks int32) {
	janitor.mu.Lock()
	defer janitor.mu.Unlock()
	if _, listed := janitor.conns[c]; listed {
		janitor.conns[c] = janitor.now + int64(ticks)
	}
}

// tick looks at the connection once.
func (c *conn) tick() {
	c.mu.Lock()
	if c.lingers {
		c.lingerTick()
		return
	}
	defer c.control()
	defer c.mu.Unlock()
	w := &c.watch
	attended := c.polled != w.polled
	w.polled = c.polled
	if !attended {
		c.attend()
	}
	if c.activity != w.activity {
		w.activity, w.idle = c.activity, 0
		return
	}
	w.idle++
	c.readAhead()
	if attended {
		return
	}
	if w.idle >= restTicks && !c.starved {
		w.idle += restPause - 1
		c.rest(restPause)
	}
	idler, _ := c.qp.(rdma.Shrinker)
	if w.idle >= idleTicks {
		c.session.Source.Idle()
		c.lookDue()
		if idler != nil {
			idler.Shrink()
			idler = nil
		}
	}
	if !c.session.Source.Grown() && idler == nil || c.sendErr != nil || w.idle >= 2*idleTicks {
		c.unwatch()
	}
}
