package engine

import "github.com/gosdp/gosdp/internal/observe"

// writeDumped is writeAll for a connection that may take part in a dump. The bytes go to the
// dump before they are sent, so that no answer of the peer stands before them.
func (c *Conn) writeDumped(b []byte) (n int, err error) {
	s := c.dump.Load()
	if s == nil {
		return c.writeAll(b)
	}
	c.mu.Lock()
	err = c.cannotWriteLocked()
	c.mu.Unlock()
	if err != nil {
		return 0, err
	}
	s.Sent(b)
	n, err = c.writeAll(b)
	s.NotSent(len(b) - n)
	return n, err
}

// dumpRead adds what a Read has returned to the dump. The caller must hold readMu, and not mu,
// because the dump may take a moment.
func (c *Conn) dumpRead(b []byte, err error) { observe.DumpRead(c.dump.Load(), b, err) }

// dumpEnd adds the end of what this end sends.
func (c *Conn) dumpEnd(reset bool) {
	switch s := c.dump.Load(); {
	case s == nil:
	case reset:
		s.ResetSent()
	default:
		s.EndSent()
	}
}
