package sdp

import (
	"sync"
	"time"

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
)

var janitor struct {
	mu      sync.Mutex // below every Conn.mu
	conns   map[*Conn]struct{}
	running bool
}

// watch is what the janitor knows of a connection. Guarded by Conn.mu.
type watch struct {
	polled   uint32 // Conn.polled at the last tick
	activity uint32 // Conn.activity
	idle     int32  // ticks for which it has not changed
	listed   bool
}

// watchLocked has the janitor look after the connection. Called with mu held.
func (c *Conn) watchLocked() {
	if c.watch.listed || c.closed || c.recvErr != nil && !c.source.Grown() {
		return
	}
	c.watch = watch{listed: true, polled: c.polled, activity: c.activity}
	janitor.mu.Lock()
	defer janitor.mu.Unlock()
	if janitor.conns == nil {
		janitor.conns = make(map[*Conn]struct{})
	}
	janitor.conns[c] = struct{}{}
	if !janitor.running {
		janitor.running = true
		go sweep()
	}
}

// unwatch takes the connection from the janitor. Called with mu held.
func (c *Conn) unwatch() {
	c.watch.listed = false
	janitor.mu.Lock()
	delete(janitor.conns, c)
	janitor.mu.Unlock()
}

// sweep is the janitor's goroutine, which ends when there is nothing to do.
func sweep() {
	tick := newTicker(janitorTick)
	defer tick.stop()
	var conns []*Conn
	for {
		tick.wait()
		janitor.mu.Lock()
		conns = conns[:0]
		for c := range janitor.conns {
			conns = append(conns, c)
		}
		if len(conns) == 0 {
			janitor.running = false
			janitor.mu.Unlock()
			return
		}
		janitor.mu.Unlock()
		for _, c := range conns {
			c.tick()
		}
		clear(conns)
	}
}

// tick looks at the connection once.
func (c *Conn) tick() {
	c.mu.Lock()
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
	idler, _ := c.qp.(rdma.Idler)
	if w.idle >= idleTicks {
		c.source.Idle()
		if c.controlDue() {
			c.due.Store(true)
		}
		if idler != nil {
			idler.Idle()
			idler = nil
		}
	}
	if !c.source.Grown() && idler == nil || c.sendErr != nil || w.idle >= 2*idleTicks {
		c.unwatch()
	}
}
