package sdp

import (
	"errors"
	"io"
	"syscall"
)

// SyscallConn returns the connection as a [syscall.RawConn], for what programs
// use one for:
//
//   - Control is the TCP socket's, to set or get its options. Reading or writing
//     it there breaks the connection.
//   - Read calls its function with a descriptor that answers as the stream would
//     to one who asks whether it is alive, as connection pools do: with EAGAIN
//     while nothing is unread, with unread bytes if there are, with an end if the
//     peer has ended its direction. What is read there the stream still has. It
//     fails with the connection's error if that has one, and if the peer has
//     advertised bytes of which none are here to be shown.
//   - Write fails.
func (c *Conn) SyscallConn() (syscall.RawConn, error) {
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
	c   *Conn
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
		announced := c.zsink.Announced()
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
