package engine

import (
	"errors"
	"io"
	"os"
	"syscall"

	"github.com/gosdp/gosdp/internal/fault"
)

// lostMost is how many bytes of the first Write after the peer's Close are taken and lost.
const lostMost = 64 << 10

func (c *Conn) Write(b []byte) (n int, err error) {
	c.writeMu.Lock()
	defer c.writeMu.Unlock()
	n, err = c.writeWhole(b)
	return n, c.opError("write", c.once(err, syscall.EPIPE))
}

// writeWhole writes b. The caller must hold writeMu.
func (c *Conn) writeWhole(b []byte) (n int, err error) {
	if fault.Mapped(b) {
		return c.writeMapped(b)
	}
	return c.writeOrLose(b)
}

// writeOrLose is writeWhole for memory that can be read.
func (c *Conn) writeOrLose(b []byte) (n int, err error) {
	if c.dump.Load() == nil {
		n, err = c.writeAll(b)
	} else {
		n, err = c.writeDumped(b)
	}
	if err != nil {
		n, err = c.lose(b, n, err)
	}
	return n, err
}

// lose lets one Write succeed that finds that the peer has closed, as over TCP, where the kernel takes
// the bytes and learns from the peer's answer that nobody reads them. Programs write a last
// message to a peer that has just left, such as TLS's alert, and report an error of that Write.
// Before it a Write of nothing succeeds too.
func (c *Conn) lose(b []byte, n int, err error) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lost || c.phase.writeClosed() || !errors.Is(err, syscall.EPIPE) {
		return n, err
	}
	for before := c.poll.activity - 1; c.recvErr == nil && c.poll.activity != before; {
		before = c.poll.activity
		c.poll.receiveArrivedReleasing() // why the device sends nothing more, after what the peer has sent
	}
	first := !c.lost // an AbortConn may have arrived
	c.lost = !first || len(b) > 0
	if !first || c.phase.closed() || c.recvErr != io.EOF {
		return n, err
	}
	if n += min(len(b)-n, lostMost); n == len(b) {
		err = nil
	}
	return n, err
}

// writeAll writes b. The caller must hold writeMu.
func (c *Conn) writeAll(b []byte) (n int, err error) {
	c.mu.Lock()
	if len(b) == 0 || c.phase.writeClosed() {
		c.poll.receiveArrivedReleasing() // a kernel reports a reset, although nothing is sent
	}
	if err := c.cannotWriteLocked(); err != nil || len(b) == 0 {
		c.mu.Unlock()
		return 0, err
	}
	planned := c.session.BeginWrite(len(b))
	c.mu.Unlock()
	if planned {
		return c.zcopy.write(b)
	}
	return c.out.send(b, (*Conn).cannotWriteLocked)
}

// cannotWriteLocked returns why a Write must not go on, or nil.
func (c *Conn) cannotWriteLocked() error {
	switch {
	case c.phase.closed():
		return errClosed
	case c.write.passed():
		return os.ErrDeadlineExceeded
	case c.sendErr != nil:
		return c.sendErr
	case c.phase.writeClosed():
		return syscall.EPIPE
	}
	return nil
}

// sendFailedLocked notes that the device sends nothing more because of err. What has
// arrived can still be read. It returns the error that Writes get.
func (c *Conn) sendFailedLocked(err error) error {
	if isReset(err) && c.session.PeerEnded() {
		err, c.lost = syscall.EPIPE, true // as a kernel that has received a FIN reports a reset
	}
	if c.sendErr == nil {
		c.sendErr = err
		c.poll.wakeAllLocked() // a call that waits for it may be polling
	}
	return c.sendErr
}
