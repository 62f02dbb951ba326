//go:build !linux

package engine

// ackNow does nothing: this system has no option for it, and no Close waits for it.
func (c *Conn) ackNow() {}
