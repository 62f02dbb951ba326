//go:build linux

package stream

import "golang.org/x/sys/unix"

// Close closes the connection; see net.Conn. If bytes have arrived that no Read has taken, in the socket
// or in the ring, the peer sees a reset.
//
//  1. Mark the connection, and wake the calls that wait.
//  2. With wmu: the writer leaves its gate, so that the reader looks for the end on TCP, after the ring.
//  3. Close the TCP socket: a FIN or a reset.
//  4. With rmu: recall the peer's direction, so that its writer finds the reset on TCP.
func (c *Conn) Close() error {
	if c.state.Or(closed)&closed != 0 {
		return c.tcp.Close()
	}
	c.stopMoving()
	l := c.linked.Load()
	if l == nil || !l.hold() {
		return c.tcp.Close()
	}
	c.interruptWrite()
	c.wmu.Lock()
	l.closeWriter()
	c.wmu.Unlock()
	if l.hasUnread() {
		c.tcp.SetLinger(0)
	}
	err := c.tcp.Close()
	l.bell.Rouse()
	c.rmu.Lock()
	l.closeReader()
	c.rmu.Unlock()
	l.drop()
	return err
}

// closeWriter needs wmu. If the direction was recalled, the reader finds what TCP does not have in the ring.
func (l *link) closeWriter() {
	w := &l.writer
	if w.reclaim(); w.at() != home {
		w.gate.Leave()
		l.wakeReader()
		l.bring(&w.half)
	}
}

// closeReader needs rmu.
func (l *link) closeReader() {
	r := &l.reader
	if r.reclaim(); r.at() != home {
		r.gate.Recall()
		l.ring(r.ring.WakeWriter(true))
		l.bring(&r.half)
	}
}

// hasUnread reports whether bytes have arrived in the ring that no Read has taken, from there or, while the writer brings
// the direction home, from TCP. The kernel knows those that are on TCP once the direction is home.
func (l *link) hasUnread() bool {
	if l.reader.at()&^lent == home {
		return false
	}
	w, r := l.reader.gate.Load(), &l.reader.ring
	return w.Moved() && int64(w.Sent()+r.Head()-l.c.in.Load()-r.Position()) > 0
}

// CloseWrite shuts down the writing side; see net.TCPConn. A Write that waits fails.
func (c *Conn) CloseWrite() error {
	if c.policy == nil && c.linked.Load() == nil {
		return c.tcp.CloseWrite()
	}
	c.state.Or(writeShut) // before it looks for a link: no Write moves after this
	resume := c.interruptWrite()
	c.wmu.Lock()
	if l := c.linked.Load(); l != nil && l.hold() {
		l.closeWriter()
		l.drop()
	}
	err := c.tcp.CloseWrite()
	c.wmu.Unlock()
	resume()
	return err
}

// CloseRead shuts down the reading side; see net.TCPConn. Reads return what has arrived, then io.EOF.
func (c *Conn) CloseRead() error {
	c.state.Or(readShut)
	err := c.tcp.CloseRead()
	c.rouse()
	return err
}

// SetLinger sets what Close does with data that the peer has not acknowledged; see net.TCPConn. What is in
// the ring has reached the peer.
func (c *Conn) SetLinger(sec int) error { return c.tcp.SetLinger(sec) }

// violated ends a connection whose peer has written something impossible into the segment: both directions
// fail with a reset.
func (l *link) violated(err error) {
	c := l.c
	c.violation.CompareAndSwap(nil, &err)
	l.raw.Control(func(fd uintptr) { unix.Shutdown(int(fd), unix.SHUT_RDWR) })
	l.seg.Leave()
	l.bell.Ring()
	l.bell.Rouse()
}

// Violation returns how the peer has broken the protocol, or nil.
func (c *Conn) Violation() error {
	if err := c.violation.Load(); err != nil {
		return *err
	}
	return nil
}
