package rnic

import "sync"

// Cond is a condition variable that takes 16 bytes while no goroutine waits: it borrows a
// sync.Cond only for the time of a wait. The caller holds one and the same lock in every
// call. The zero value is ready to use.
type Cond struct {
	cond *sync.Cond
	n    int32 // waiting goroutines
}

var conds = sync.Pool{New: func() any { return new(sync.Cond) }}

// Waited reports whether a goroutine waits.
func (c *Cond) Waited() bool { return c.n > 0 }

// Wait releases l, waits for Broadcast, and locks l again.
func (c *Cond) Wait(l sync.Locker) {
	if c.n == 0 {
		c.cond = conds.Get().(*sync.Cond)
		c.cond.L = l
	}
	c.n++
	c.cond.Wait()
	if c.n--; c.n == 0 {
		c.cond.L = nil
		conds.Put(c.cond)
		c.cond = nil
	}
}

// Broadcast wakes every goroutine that waits.
func (c *Cond) Broadcast() {
	if c.n > 0 {
		c.cond.Broadcast()
	}
}
