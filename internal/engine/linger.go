package engine

import (
	"context"
	"math/bits"
	"slices"
	"sync"
	"time"

	"github.com/gosdp/gosdp/internal/bubble"
	"github.com/gosdp/gosdp/internal/observe"
)

const (
	// drainTime is how long a device that cannot be asked may drain in the background. The
	// hardware gives up on a peer before that.
	drainTime = time.Minute
	// lingerMost is how many ticks the idle monitor lets pass at most between two visits to a
	// closed connection. Otherwise it lets as many pass as have passed since Close.
	lingerMost = 128
	// Closed connections keep at most one in lingerShare of the descriptors that the process may have.
	// TCP's need none.
	lingerShare = 4
)

// mostLingering is the maximum number of connections that are closed in the background.
// Tests change it.
var mostLingering = 16 << 10

// lingering are the connections that were closed before the peer had received everything.
// They are finished in the background, as a kernel does for TCP: the idle monitor visits
// them until the kernel reports that the peer has acknowledged everything, or has given up.
// That takes as long as it would with TCP. If the device cannot be asked (verbs), a
// goroutine of the connection waits.
//
// Each of them keeps its descriptors, so their number is limited. One more than that resets
// the oldest.
var lingering lingerList

type lingerList struct {
	mu    sync.Mutex
	conns []*Conn       // the one that was closed first comes first
	gone  chan struct{} // closed when there are none; nil if no call waits for that
}

// add adds c. It returns the oldest connection if there are too many, which must be reset.
func (l *lingerList) add(c *Conn) (oldest *Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conns = append(l.conns, c)
	observe.Closing.Add(1)
	if len(l.conns) > min(mostLingering, mostDescriptors()/lingerShare) {
		oldest = l.conns[0]
		observe.CloseResets.Add(1)
	}
	return oldest
}

// remove removes c, which has been concluded.
func (l *lingerList) remove(c *Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := slices.Index(l.conns, c); i >= 0 {
		l.conns = slices.Delete(l.conns, i, i+1)
		observe.Closing.Add(-1)
	}
	if len(l.conns) == 0 && l.gone != nil {
		close(l.gone)
		l.gone = nil
	}
}

// empty returns a channel that is closed when the list is empty, or nil if it is.
func (l *lingerList) empty() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.conns) == 0 {
		return nil
	}
	if l.gone == nil {
		l.gone = make(chan struct{})
	}
	return l.gone
}

// lingerOn leaves the closed connection to the background. The connection must be stepping.
func (k *closer) lingerOn() {
	c := k.conn
	asks := c.qp.Limits().Finishes
	if bubble.Inside() {
		// Nothing may outlive the test. The kernel goes on sending what it has.
		c.mu.Lock()
		kept := asks && c.session.EndSent() && !c.qp.Busy()
		c.mu.Unlock()
		k.conclude(!kept)
		return
	}
	if oldest := lingering.add(c); oldest != nil {
		oldest.closer.drop()
	}
	if !asks {
		go func() {
			_, reset := k.drain(drainTime)
			k.finish(reset)
		}()
		return
	}
	c.mu.Lock()
	c.phase.wait()
	idleMonitor.addLocked(c)
	c.mu.Unlock()
}

// visit takes a step for a closed connection, unless another goroutine does. The idle monitor
// calls it.
func (k *closer) visit() {
	c := k.conn
	c.mu.Lock()
	if c.phase != waiting {
		c.mu.Unlock()
		return
	}
	idle := &c.idle
	pause := int32(1) << bits.Len32(uint32(min(max(1, idle.ticks), lingerMost))) / 2
	idle.ticks += idleMonitor.restLocked(c, pause)
	c.phase.resume()
	over, reset := k.stepReleasing()
	if !over {
		c.phase.wait()
		c.mu.Unlock()
		return
	}
	idleMonitor.removeLocked(c)
	c.mu.Unlock()
	go k.finish(reset) // it calls the program's Logger, for which other connections must not wait
}

// drop resets a connection in the background.
func (k *closer) drop() {
	c := k.conn
	c.mu.Lock()
	k.reset = true
	if c.phase != waiting { // a goroutine takes steps and finds reset set, or has nearly finished
		c.poll.wakeAllLocked()
		c.mu.Unlock()
		return
	}
	c.phase.resume()
	idleMonitor.removeLocked(c)
	c.mu.Unlock()
	k.finish(true)
}

// finish ends the channel of a connection in the background.
func (k *closer) finish(reset bool) {
	k.conclude(reset)
	lingering.remove(k.conn)
}

// WaitClosed waits until every closed connection has delivered what its Writes accepted, or has
// failed. In a testing/synctest bubble it returns immediately, because Close itself waits there.
func WaitClosed(ctx context.Context) error {
	if bubble.Inside() {
		return nil
	}
	empty := lingering.empty()
	if empty == nil {
		return nil
	}
	select {
	case <-empty:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
