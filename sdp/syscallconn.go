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
//     while nothing is unread, with an end if the peer has ended its direction.
//     It fails if something is unread, and with the connection's error.
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
	errRawUnread = errors.New("there are unread bytes, which only Read returns")
	errRawWrite  = errors.New("the socket carries RDMA messages; use Write")
)

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
	if !c.polling && !c.closed {
		c.drainPolled() // what has come and nobody has taken in
		c.watchLocked()
	}
	unread := c.sink.Head() != nil
	err := c.cannotRead()
	if err == nil && !unread {
		if err = c.recvErr; err == nil && c.sink.Ended() {
			err = io.EOF
		}
	}
	c.mu.Unlock()
	c.control()
	switch {
	case unread:
		return c.opError("raw-read", errRawUnread)
	case err != nil && err != io.EOF:
		return c.opError("raw-read", err)
	}
	done, ferr := quiet(err == io.EOF, f)
	switch {
	case ferr != nil:
		return c.opError("raw-read", ferr)
	case done:
		return nil
	}
	// It wants to wait for bytes, which it could not get.
	c.mu.Lock()
	err = c.awaitPayload()
	c.mu.Unlock()
	if err == nil {
		err = errRawUnread
	}
	return c.opError("raw-read", err)
}

func (r *rawConn) Write(func(fd uintptr) (done bool)) error {
	return r.c.opError("raw-write", errRawWrite)
}
