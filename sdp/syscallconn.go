package sdp

import (
	"errors"
	"io"
	"syscall"
)

func (c *conn) SyscallConn() (syscall.RawConn, error) {
	raw := &rawConn{c: c}
	if sc, ok := c.tcp.(syscall.Conn); ok {
		rc, err := sc.SyscallConn()
		if err != nil {
			return nil, err
		}
		raw.tcp = rc
	}
	return raw, nil
}

type rawConn struct {
	c   *conn
	tcp syscall.RawConn // nil: the connection below has none
}

var (
	errRawUnread = errors.New("there are unread bytes, which only Read takes")
	errRawWrite  = errors.New("the socket carries RDMA messages; use Write")
)

// doubled is how many unread bytes the descriptor of Read shows at most.
const doubled = 4 << 10

func (r *rawConn) Control(f func(fd uintptr)) error {
	if r.tcp == nil {
		return r.c.opError("raw-control", errors.ErrUnsupported)
	}
	return r.tcp.Control(f)
}

func (r *rawConn) Read(f func(fd uintptr) (done bool)) error {
	c := r.c
	c.readMu.Lock()
	defer c.readMu.Unlock()
	c.mu.Lock()
	defer func() {
		c.mu.Lock()
		c.giveBack()
		c.mu.Unlock()
		c.control()
	}()
	if !c.polling && !c.closed {
		c.drainPolled() // what has come and nobody has taken in
		c.watchLocked()
	}
	for {
		head, err := c.look()
		announced := c.session.ZSink.Announced()
		c.mu.Unlock()
		c.control()
		if err != nil && err != io.EOF {
			return c.opError("raw-read", err)
		}
		done, ferr := double(head[:min(len(head), doubled)], err == io.EOF, f)
		if ferr == nil && done && len(head) == 0 && announced {
			ferr = errRawUnread // the descriptor could not show them
		}
		if ferr != nil || done || err == io.EOF {
			return c.opError("raw-read", ferr)
		}
		c.mu.Lock()
		if len(head) == 0 {
			c.awaitPayload() // whose error look finds again
			continue
		}
		c.mu.Unlock()
		return c.opError("raw-read", errRawUnread)
	}
}

func (r *rawConn) Write(func(fd uintptr) (done bool)) error {
	return r.c.opError("raw-write", errRawWrite)
}
