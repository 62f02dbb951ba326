//go:build linux

package stream

import (
	"math"
	"time"

	"github.com/gosdp/gosdp/internal/lockorder"
	"github.com/gosdp/gosdp/internal/ticker"
	"github.com/gosdp/gosdp/internal/timing"
)

// children are the accepted connections whose peer may be in Meet and sends nothing before that has returned: their
// program's calls take no steps then. Soon after there is none, there is no goroutine either.
var children nursery

// looks are how long after Move a connection looks for such a peer.
var looks = [...]time.Duration{timing.YoungFirst, 160 * time.Millisecond, 480 * time.Millisecond, timing.YoungLast}

const (
	lookEvery = int64(timing.YoungStep)  // between the steps of a meeting
	least     = int64(timing.YoungFirst) // between other visits
	lull      = 50 * time.Millisecond    // after the last connection, for the next one
)

type nursery struct {
	mu     lockorder.Mutex[lockorder.StreamYoung]
	conns  []child        // that are to come
	ticker *ticker.Ticker // nil: run does not run
	idle   bool           // run waits for conns

	old []child // of run
}

type child struct {
	c         *Conn
	born, due int64 // since epoch
	looked    int
}

func (n *nursery) add(c *Conn, now int64) {
	n.mu.Lock()
	n.conns = append(n.conns, child{c: c, born: now, due: now + int64(looks[0])})
	switch {
	case n.ticker == nil:
		n.ticker = ticker.New()
		go n.run(n.ticker)
		n.ticker.Set(looks[0])
	case n.idle:
		n.ticker.Set(looks[0])
	}
	n.idle = false
	n.mu.Unlock()
}

func (n *nursery) run(t *ticker.Ticker) {
	for {
		t.Wait()
		if !n.visit() {
			t.Stop()
			return
		}
	}
}

// visit looks after the connections that are due, and sets the next visit, unless there is none.
func (n *nursery) visit() (again bool) {
	n.mu.Lock()
	n.conns, n.old = n.old[:0], n.conns
	n.mu.Unlock()
	now := int64(time.Since(epoch))
	pause := least
	kept := n.old[:0]
	for _, k := range n.old {
		if k.due > now || k.look(now) {
			kept = append(kept, k)
		}
		if k.due == now+lookEvery {
			pause = lookEvery
		}
	}
	clear(n.old[len(kept):])

	n.mu.Lock()
	defer n.mu.Unlock()
	n.conns, n.old = append(kept, n.conns...), n.conns
	clear(n.old)
	switch {
	case len(n.conns) > 0:
		due := int64(math.MaxInt64)
		for _, k := range n.conns {
			due = min(due, k.due)
		}
		n.ticker.Set(time.Duration(max(due-int64(time.Since(epoch)), pause)))
	case n.idle:
		n.conns, n.old, n.ticker, n.idle = nil, nil, nil, false
		return false
	default:
		n.idle = true
		n.ticker.Set(lull)
	}
	return true
}

// look looks for the peer, and reports whether to do so again. A peer that has sent something is not in Meet.
func (k *child) look(now int64) (again bool) {
	c := k.c
	if c.is(closed) || c.in.Load() > 0 || c.linked.Load() != nil {
		return false
	}
	if met, _ := c.TryMeet(); met {
		return false
	}
	if c.isMeeting() {
		k.due = now + lookEvery
		return true
	}
	k.looked++
	if k.looked == len(looks) {
		return false
	}
	k.due = k.born + int64(looks[k.looked])
	return true
}
