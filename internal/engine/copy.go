package engine

import (
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"sync"
	"syscall"

	"github.com/gosdp/gosdp/bcopy"
	"github.com/gosdp/gosdp/internal/fault"
	"github.com/gosdp/gosdp/internal/observe"
)

// copyBuffer is the size of the buffer into which ReadFrom reads and WriteBuffers gathers
// small slices: enough to fill half of a Batch. While a source returns little at a time, or
// nothing, ReadFrom holds only a buffer of idleBuffer.
const (
	copyBuffer = 256 << 10
	idleBuffer = 16 << 10
)

var errInvalidWrite = errors.New("invalid write result") // as io.Copy says

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

// ReadFrom implements the io.ReaderFrom ReadFrom method.
func (c *Conn) ReadFrom(r io.Reader) (n int64, err error) {
	n, err = c.readFrom(r)
	return n, c.opError("readfrom", err)
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
				giveBack(r, got-put)
				return n, err
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

// giveBack moves r back by n bytes if it is a file. TCP's ReadFrom has the kernel send from a file, and so
// takes only what is sent: after an error a program can go on where it was.
func giveBack(r io.Reader, n int) {
	limited, _ := r.(*io.LimitedReader)
	if limited != nil {
		r = limited.R
	}
	f, ok := r.(interface { // an *os.File, or what its WriteTo passes on
		fs.File
		io.Seeker
		syscall.Conn
		Fd() uintptr
	})
	if !ok {
		return
	}
	if _, err := f.Seek(-int64(n), io.SeekCurrent); err == nil && limited != nil {
		limited.N += int64(n)
	}
}

// WriteTo implements the io.WriterTo WriteTo method.
func (c *Conn) WriteTo(w io.Writer) (n int64, err error) {
	if readsItself(w) {
		n, err = w.(io.ReaderFrom).ReadFrom(struct{ net.Conn }{c}) // without c's WriteTo
		if err == io.EOF {
			return n, err // as package net
		}
		return n, c.opError("writeto", err)
	}
	for {
		payload, owner, err := c.takePayload()
		err = c.once(err, io.EOF)
		if err != nil {
			if err == io.EOF {
				return n, nil
			}
			return n, c.opError("writeto", c.opError("read", err))
		}
		// No lock is held here, because w may block for any time. A concurrent Read still
		// obeys its deadline and Close, and reads what follows.
		put, err := w.Write(payload)
		switch {
		case put < 0 || put > len(payload):
			put = 0
			if err == nil {
				err = errInvalidWrite
			}
		case err == nil && put < len(payload):
			err = io.ErrShortWrite
		}
		n += int64(put)
		c.returnPayload(payload[put:], owner)
		if err != nil {
			return n, c.opError("writeto", err)
		}
	}
}

// readsItself reports whether w has a ReadFrom that may do other things with the bytes than Write does.
// The one of a [bufio.Writer] passes them on at once, where Write keeps them until its buffer is full:
// a relay that does not flush depends on it.
func readsItself(w io.Writer) bool {
	switch w.(type) {
	case *net.TCPConn, *os.File:
		return false
	case observe.Conn: // a connection of this library, and no program's wrapper of one
		return false
	}
	_, ok := w.(io.ReaderFrom)
	return ok && w != io.Discard
}

// takePayload waits for unread payload, and takes the oldest out of the queue. The payload
// counts as read. The caller must pass the owner of its memory to returnPayload.
func (c *Conn) takePayload() (payload []byte, owner bcopy.Owner, err error) {
	c.readMu.Lock()
	defer c.readMu.Unlock()
	payload, owner, err = c.awaitAndTake()
	if c.dump.Load() != nil {
		c.dumpRead(payload, err)
	}
	return payload, owner, err
}

// awaitAndTake is takePayload with readMu held.
func (c *Conn) awaitAndTake() (payload []byte, owner bcopy.Owner, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.awaitPayloadReleasing(); err != nil {
		return nil, nil, err
	}
	payload = c.session.Head()
	owner = c.session.Consume(len(payload))
	return payload, owner, nil
}

// returnPayload returns what takePayload took, of which rest was not read.
func (c *Conn) returnPayload(rest []byte, owner bcopy.Owner) {
	c.mu.Lock()
	switch {
	case len(rest) > 0:
		for c.lent != notLent {
			c.lent = lentWanted
			c.poll.followReleasing()
		}
		c.session.Return(rest, owner)
		c.poll.wakeAllLocked() // a Read may wait
		if s := c.dump.Load(); s != nil {
			s.NotReceived(len(rest))
		}
	case owner != nil:
		c.promise.adapt()
		c.promise.release(owner)
	default:
		c.promise.repost()
	}
	c.promise.account()
	c.out.checkDueLocked()
	c.mu.Unlock()
	if c.out.due.Load() {
		c.out.sendDue()
	}
}

// WriteBuffers writes the contents of v in one operation, and consumes v as [net.Buffers.WriteTo] does.
func (c *Conn) WriteBuffers(v *net.Buffers) (n int64, err error) {
	c.writeMu.Lock()
	defer c.writeMu.Unlock()
	buf := copyPool.Get().(*[]byte)
	defer copyPool.Put(buf)
	for len(*v) > 0 {
		b := (*v)[0]
		if len(*v) > 1 {
			if k := gather(*buf, *v); k > 0 {
				b = (*buf)[:k]
			}
		}
		put, err := c.writeWhole(b)
		n += int64(put)
		consume(v, put)
		if err != nil {
			return n, c.opError("writev", c.once(err, syscall.EPIPE))
		}
	}
	return n, nil
}

// gather copies the first slices of v into buf, as many as are small, fit and can be read, and
// returns how many bytes it copied.
func gather(buf []byte, v net.Buffers) (n int) {
	for _, b := range v {
		if len(b) > len(buf)-n || len(b) >= copyBuffer/4 || fault.Readable(b) < len(b) {
			break
		}
		n += copy(buf[n:], b)
	}
	return n
}

// consume removes the first n bytes of v, and empty slices in front of the rest.
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
