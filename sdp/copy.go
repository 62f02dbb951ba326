package sdp

import (
	"errors"
	"io"
	"net"
	"sync"
)

// copyBuffer is what ReadFrom reads from its source at a time, and WriteBuffers
// gathers small slices into: enough messages to fill a batch half. A source that
// gives little at a time, or nothing, holds no more than idleBuffer.
const (
	copyBuffer = 256 << 10
	idleBuffer = 16 << 10
)

var (
	copyPool = sync.Pool{New: func() any {
		b := make([]byte, copyBuffer)
		return &b
	}}
	idlePool = sync.Pool{New: func() any {
		b := make([]byte, idleBuffer)
		return &b
	}}
)

// ReadFrom writes what r has until its end, and returns how many bytes that
// were. It is what io.Copy uses.
func (c *Conn) ReadFrom(r io.Reader) (n int64, err error) {
	n, err = c.readFrom(r)
	return n, c.opError("readfrom", err)
}

// cause returns what is inside an error of package net's kind.
func cause(err error) error {
	if op, ok := err.(*net.OpError); ok {
		return op.Err
	}
	return err
}

func (c *Conn) readFrom(r io.Reader) (n int64, err error) {
	pool := &idlePool
	buf := pool.Get().(*[]byte)
	defer func() { pool.Put(buf) }()
	for {
		got, readErr := r.Read(*buf)
		if got > 0 {
			put, err := c.Write((*buf)[:got])
			n += int64(put)
			if err != nil {
				return n, cause(err)
			}
		}
		switch readErr {
		case nil:
		case io.EOF:
			return n, nil
		default:
			return n, readErr
		}
		next := pool
		if got == len(*buf) {
			next = &copyPool
		} else if got < copyBuffer/2 {
			next = &idlePool
		}
		if next != pool {
			pool.Put(buf)
			pool = next
			buf = pool.Get().(*[]byte)
		}
	}
}

// WriteTo hands what comes to w until the peer ends its direction, and returns
// how many bytes that were. The bytes are handed over where they lie in the
// private buffers, so w must not keep or change them; no io.Writer does. It is
// what io.Copy uses.
func (c *Conn) WriteTo(w io.Writer) (n int64, err error) {
	c.readMu.Lock()
	defer c.readMu.Unlock()
	for {
		head, err := c.nextPayload()
		if err != nil {
			if err == io.EOF {
				return n, nil
			}
			return n, c.opError("writeto", err)
		}
		put, err := w.Write(head)
		switch {
		case put < 0 || put > len(head):
			put, err = 0, errors.New("invalid count from Write")
		case err == nil && put < len(head):
			err = io.ErrShortWrite
		}
		n += int64(put)
		c.consumed(put)
		if err != nil {
			return n, c.opError("writeto", err)
		}
	}
}

// nextPayload waits for unread payload and returns the oldest. Called with
// readMu held.
func (c *Conn) nextPayload() ([]byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.small.interrupted()
	if err := c.awaitPayload(); err != nil {
		return nil, err
	}
	return c.sink.Head(), nil
}

// consumed takes n bytes from what nextPayload returned. Called with readMu
// held.
func (c *Conn) consumed(n int) {
	c.mu.Lock()
	if owner := c.sink.Consume(n); owner != nil {
		c.release(owner)
	}
	c.giveBack()
	if c.controlDue() {
		c.due.Store(true)
	}
	c.mu.Unlock()
	if c.due.Load() {
		c.control()
	}
}

// WriteBuffers writes the slices one after the other, as if they were one, and
// returns how many bytes went. It consumes *v as net.Buffers.WriteTo does, which
// would make a Write of each of them.
func (c *Conn) WriteBuffers(v *net.Buffers) (n int64, err error) {
	c.writeMu.Lock()
	defer c.writeMu.Unlock()
	buf := copyPool.Get().(*[]byte)
	defer copyPool.Put(buf)
	for len(*v) > 0 {
		b := (*v)[0]
		if len(*v) > 1 && len(b) < copyBuffer/4 {
			b = (*buf)[:gather(*buf, *v)]
		}
		put, err := c.writeLocked(b)
		n += int64(put)
		consume(v, put)
		if err != nil {
			return n, c.opError("writev", err)
		}
	}
	return n, nil
}

// gather copies slices into buf, as many as are small and fit, and returns how
// many bytes that were.
func gather(buf []byte, v net.Buffers) (n int) {
	for _, b := range v {
		if len(b) > len(buf)-n || len(b) >= copyBuffer/4 {
			break
		}
		n += copy(buf[n:], b)
	}
	return n
}

// consume removes the first n bytes, and the empty slices before the rest.
func consume(v *net.Buffers, n int) {
	for len(*v) > 0 && n >= len((*v)[0]) {
		n -= len((*v)[0])
		(*v)[0] = nil
		*v = (*v)[1:]
	}
	if len(*v) > 0 {
		(*v)[0] = (*v)[0][n:]
	}
}
