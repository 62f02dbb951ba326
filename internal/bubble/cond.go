package bubble

import "sync"

// Cond is a condition variable. If it was made outside bubbles, goroutines inside and outside may
// wait: the runtime ends a program in which a goroutine wakes one in a bubble from outside through a
// sync.Cond, and takes such a wait for one that only the bubble can end.
//
// It takes 16 bytes while no goroutine waits: it borrows what it needs for the time of a wait. The
// caller holds one and the same lock in every call, but for Make. The zero value is ready to use by
// goroutines of one bubble.
type Cond struct {
	waiters *waiters
	n       int32 // waiting goroutines
	outside bool  // it was made outside bubbles
}

type waiters struct {
	outside sync.Cond
	inside  []*sync.Mutex // locked; a goroutine in a bubble waits for each to be unlocked
}

var pool = sync.Pool{New: func() any { return new(waiters) }}

// Make is called where the object that has the Cond is made.
func (c *Cond) Make() { c.outside = !Inside() }

// Waited reports whether a goroutine waits.
func (c *Cond) Waited() bool { return c.n > 0 }

// Wait releases l, waits for Broadcast, and locks l again.
func (c *Cond) Wait(l sync.Locker) {
	if c.n == 0 {
		c.waiters = pool.Get().(*waiters)
		c.waiters.outside.L = l
	}
	c.n++
	if c.outside && Inside() {
		c.waiters.waitInside(l)
	} else {
		c.waiters.outside.Wait()
	}
	if c.n--; c.n == 0 {
		c.waiters.outside.L = nil
		pool.Put(c.waiters)
		c.waiters = nil
	}
}

// waitInside is Wait in a bubble. Any goroutine may unlock a mutex.
func (w *waiters) waitInside(l sync.Locker) {
	woken := new(sync.Mutex)
	woken.Lock()
	w.inside = append(w.inside, woken)
	l.Unlock()
	woken.Lock()
	l.Lock()
}

// Broadcast wakes every goroutine that waits.
func (c *Cond) Broadcast() {
	if c.n > 0 {
		c.waiters.wake()
	}
}

func (w *waiters) wake() {
	for _, woken := range w.inside {
		woken.Unlock()
	}
	clear(w.inside)
	w.inside = w.inside[:0]
	w.outside.Broadcast()
}
