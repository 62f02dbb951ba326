//go:build linux

package stream

import (
	"math"
	"sync"
	"time"
)

// children are the accepted connections whose peer may be in Meet and sends nothing before that has returned: their
// program's calls take no steps then. While there is none, there is neither a timer nor a goroutine.
var children nursery

// looks are how long after Move a connection looks for such a peer.
var looks = [...]time.Duration{10 * time.Millisecond, 160 * time.Millisecond, 480 * time.Millisecond, time.Second}

// lookEvery is the least time between two visits, and that between the steps of a meeting.
const lookEvery = int64(time.Millisecond)

type nursery struct {
	mu    sync.Mutex
	conns []child // that are to come
	timer *time.Timer
	rings bool // the timer runs, or its function does

	old []child // of the timer's function
}

type child struct {
	c         *Conn
	born, due int64 // since epoch
	looked    int
}

func (n *nursery) add(c *Conn, now int64) {
	n.mu.Lock()
	n.conns = append(n.conns, child{c: c, born: now, due: now + int64(looks[0])})
	if !n.rings {
		n.rings = true
		n.wait(looks[0])
	}
	n.mu.Unlock()
}

// wait sets the timer. mu is held.
func (n *nursery) wait(d time.Duration) {
	if n.timer == nil {
		n.timer = time.AfterFunc(d, n.visit)
	} else {
		n.timer.Reset(d)
	}
}

// visit looks after the connections that are due.
func (n *nursery) visit() {
	n.mu.Lock()
	n.conns, n.old = n.old[:0], n.conns
	n.mu.Unlock()
	now := int64(time.Since(epoch))
	kept := n.old[:0]
	for _, k := range n.old {
		if k.due > now || k.look(now) {
			kept = append(kept, k)
		}
	}
	clear(n.old[len(kept):])

	n.mu.Lock()
	defer n.mu.Unlock()
	n.conns, n.old = append(kept, n.conns...), n.conns
	clear(n.old)
	if len(n.conns) == 0 {
		n.conns, n.old, n.rings = nil, nil, false
		return
	}
	due := int64(math.MaxInt64)
	for _, k := range n.conns {
		due = min(due, k.due)
	}
	n.wait(time.Duration(max(due-int64(time.Since(epoch)), lookEvery)))
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
