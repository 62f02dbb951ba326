package sdp

import (
	"io"
	"os"
)

// lockedCopy is how many bytes are copied to the program under the lock; more
// would keep a Write waiting.
const lockedCopy = 4 << 10

// Read reads what has come, at least one byte and at most len(b), waiting for it
// if need be. io.EOF: the peer has ended its direction. Other errors are
// *net.OpError around net.ErrClosed, os.ErrDeadlineExceeded,
// syscall.ECONNRESET, or what was wrong with the connection; what had come
// before is read first. It allocates nothing.
func (c *Conn) Read(b []byte) (int, error) {
	c.readMu.Lock()
	defer c.readMu.Unlock()
	c.mu.Lock()
	c.small.interrupted()
	n, err := c.readLocked(b)
	c.mu.Unlock()
	if c.due.Load() {
		c.control()
	}
	if err == io.EOF {
		return n, err
	}
	return n, c.opError("read", err)
}

func (c *Conn) readLocked(b []byte) (int, error) {
	for {
		switch {
		case c.closed:
			return 0, errClosed
		case c.readClosed:
			return 0, io.EOF
		case c.read.expired:
			return 0, os.ErrDeadlineExceeded
		case len(b) == 0:
			return 0, nil
		}
		if n := c.copyOut(b); n > 0 {
			return n, nil
		}
		if c.sink.Ended() && c.failed == nil && c.recvErr == nil {
			return 0, io.EOF
		}
		if c.recvErr != nil {
			return 0, c.recvErr
		}
		c.claim()
	}
}

// copyOut copies unread payload to b, and returns how many bytes.
func (c *Conn) copyOut(b []byte) (n int) {
	for n < len(b) {
		head := c.sink.Head()
		if head == nil {
			break
		}
		var k int
		if len(head) <= lockedCopy {
			k = copy(b[n:], head)
		} else {
			c.mu.Unlock()
			k = copy(b[n:], head)
			c.mu.Lock()
		}
		n += k
		if owner := c.sink.Consume(k); owner != nil {
			c.release(owner)
		}
	}
	if n > 0 && c.creditDue() {
		c.due.Store(true)
	}
	return n
}
