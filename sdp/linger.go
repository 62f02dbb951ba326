package sdp

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/gosdp/gosdp/internal/bubble"
	"github.com/gosdp/gosdp/rdma"
)

// A connection that was closed while the peer did not have everything yet is
// finished in the background, as a kernel does for TCP. The janitor visits it, and
// what it waits for is the kernel: that the peer has acknowledged everything, or that
// the kernel has given up. So it takes as long as TCP would. Where the device cannot
// be asked (verbs), a goroutine of the connection waits.
//
// Nobody waits for these connections, and each keeps its descriptors, so their number
// is bounded. One more than the bound resets the oldest.

const (
	// drainTime is how long a device that cannot be asked may take in the background.
	// The hardware gives a peer up before that.
	drainTime = time.Minute
	// lingerMost is how many of its ticks the janitor lets pass at most between two
	// visits to a closed connection; otherwise as many as have passed since Close.
	lingerMost = 128
)

// mostLingering bounds the connections that are closed in the background. A test
// changes it.
var mostLingering = 16 << 10

var lingering struct {
	mu     sync.Mutex
	conns  []*conn       // the longest closed first
	gone   chan struct{} // closed when there are none; nil: nobody waits for that
	resets uint64
}

// lingerOn leaves the closed connection to the background. stepping is set.
func (c *conn) lingerOn() {
	_, asks := c.qp.(rdma.Finisher)
	if bubble.Inside() {
		// Nothing may outlive the test. What the kernel has it goes on to send.
		c.mu.Lock()
		kept := asks && c.session.SaidEnd() && !c.qp.Busy()
		c.mu.Unlock()
		c.conclude(!kept)
		return
	}
	var oldest *conn
	lingering.mu.Lock()
	lingering.conns = append(lingering.conns, c)
	if len(lingering.conns) > mostLingering {
		oldest = lingering.conns[0]
		lingering.resets++
	}
	lingering.mu.Unlock()
	if oldest != nil {
		oldest.dropLingering()
	}
	if !asks {
		go func() {
			_, reset := c.drain(drainTime)
			c.conclude(reset)
			c.lingered()
		}()
		return
	}
	c.mu.Lock()
	c.stepping = false
	c.lingers = true
	c.watch = watch{}
	c.listLocked()
	c.mu.Unlock()
}

// lingerTick looks after the closed connection, when its time has come. Called with
// mu held; returns without.
func (c *conn) lingerTick() {
	if c.stepping {
		c.mu.Unlock()
		return
	}
	w := &c.watch
	pause := max(1, min(w.idle, lingerMost))
	w.idle += pause
	c.rest(pause)
	c.stepping = true
	over, reset := c.closeStep()
	if !over {
		c.stepping = false
		c.mu.Unlock()
		return
	}
	c.unwatch()
	c.mu.Unlock()
	c.conclude(reset)
	c.lingered()
}

// dropLingering resets a connection that is left to the background.
func (c *conn) dropLingering() {
	c.mu.Lock()
	c.giveUp = true
	if c.stepping { // whoever steps finds giveUp, or is about to be through
		c.late = true
		c.wakeAll()
		c.mu.Unlock()
		return
	}
	c.stepping = true
	c.unwatch()
	c.mu.Unlock()
	c.conclude(true)
	c.lingered()
}

// lingered takes the connection, which has been concluded, out of the background.
func (c *conn) lingered() {
	lingering.mu.Lock()
	defer lingering.mu.Unlock()
	if i := slices.Index(lingering.conns, c); i >= 0 {
		lingering.conns = slices.Delete(lingering.conns, i, i+1)
	}
	if len(lingering.conns) == 0 && lingering.gone != nil {
		close(lingering.gone)
		lingering.gone = nil
	}
}

// WaitClosed waits until every connection of this process that was closed has
// delivered what its Writes had accepted, or has failed to. A program that exits
// sooner may lose some of that, except over shm. It returns ctx's error if ctx is
// done first. In a synctest bubble it returns at once, because there Close has
// waited. Safe for concurrent use.
func WaitClosed(ctx context.Context) error {
	if bubble.Inside() {
		return nil
	}
	lingering.mu.Lock()
	if len(lingering.conns) == 0 {
		lingering.mu.Unlock()
		return nil
	}
	if lingering.gone == nil {
		lingering.gone = make(chan struct{})
	}
	gone := lingering.gone
	lingering.mu.Unlock()
	select {
	case <-gone:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
