package sdp

import (
	"runtime"
	"sync"
	"time"
)

// Writes of a few bytes in quick succession share messages: a system call for
// each would be most of their cost. The Write only appends to a buffer, and a
// goroutine, the flusher, sends what has gathered while it sent what had
// gathered before. It exists only while there is something to send.
const (
	smallWrite = 8 << 10 // bytes; a longer Write goes straight out
	smallRun   = 16      // Writes in succession that make it worth it,
	smallGap   = 20 * time.Microsecond
	smallMax   = 128 << 10 // bytes that wait for the flusher, beside as many that it sends
	smallIdle  = 4         // times that the flusher looks again before it ends
)

// coalescer gathers small Writes. Guarded by Conn.mu.
type coalescer struct {
	since    time.Duration // when the last run began, on the clock
	buf      *[]byte       // what has gathered; nil: nothing
	run      int32         // small Writes since since, with no Read between
	on       bool          // they come quickly
	flushing bool          // the flusher exists; Writes go through it
	lost     bool          // the flusher had to leave something unsent
}

var smallPool = sync.Pool{New: func() any {
	b := make([]byte, 0, smallMax)
	return &b
}}

// takes reports whether it has taken b for the flusher to send.
func (s *coalescer) takes(c *Conn, b []byte) bool {
	if s.run++; s.run >= smallRun {
		now := clock()
		s.on = now-s.since < smallRun*smallGap
		s.run, s.since = 0, now
	}
	if !s.on && !s.flushing || s.buf != nil && len(*s.buf)+len(b) > smallMax {
		return false
	}
	if s.buf == nil {
		s.buf = smallPool.Get().(*[]byte)
	}
	*s.buf = append(*s.buf, b...)
	if !s.flushing {
		s.flushing = true
		c.workers.Add(1)
		if c.flusher == nil {
			c.flusher = c.flushSmall
		}
		go c.flusher()
	}
	return true
}

// interrupted tells that the program reads: it may be waiting for the answer to
// what it has written.
func (s *coalescer) interrupted() { s.run, s.on = 0, false }

// flushSmall is the flusher.
func (c *Conn) flushSmall() {
	defer c.workers.Done()
	s := &c.small
	idle := 0
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		b := s.buf
		if b == nil {
			if idle++; idle > smallIdle || !s.on {
				break
			}
			c.mu.Unlock()
			runtime.Gosched()
			c.mu.Lock()
			continue
		}
		idle = 0
		s.buf = nil
		c.tell()
		c.mu.Unlock()
		_, err := c.send(*b, (*Conn).cannotFlush)
		*b = (*b)[:0]
		smallPool.Put(b)
		c.mu.Lock()
		if err != nil {
			s.buf, s.lost = nil, true // Writes fail from now on, and Close resets
			break
		}
	}
	s.flushing = false
	c.endWrites()
	c.tell()
	if c.due.Load() {
		c.mu.Unlock()
		c.control()
		c.mu.Lock()
	}
}

// cannotFlush returns why the flusher must not go on, or nil. Neither a deadline
// nor Close ends it, since its Writes have returned. Called with mu held.
func (c *Conn) cannotFlush() error {
	if c.giveUp {
		return errClosed
	}
	return c.sendErr
}
