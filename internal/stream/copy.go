//go:build linux

package stream

import (
	"errors"
	"io"
	"net"
	"os"
	"reflect"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/gosdp/gosdp/internal/fault"
	"github.com/gosdp/gosdp/internal/meeting"
)

// copyBuffer is the size of the buffer between the connection and a reader or writer, as io.Copy has it.
const copyBuffer = 32 << 10

var copyPool = sync.Pool{New: func() any { return new([copyBuffer]byte) }}

// ReadFrom reads from r until io.EOF, and writes to the connection; see net.TCPConn. While the connection is on TCP, the
// kernel sends from a file, a TCP or a Unix connection. If a Write fails and r is a file, its offset is that of the first
// byte that was not written.
func (c *Conn) ReadFrom(r io.Reader) (n int64, err error) {
	n, err = c.readFrom(r)
	if err != nil {
		err = c.opError("readfrom", err)
	}
	return n, err
}

func (c *Conn) readFrom(r io.Reader) (n int64, err error) {
	src := sourceOf(r)
	for {
		k, how, err := c.sendFrom(&src)
		if how == notAtAll && err == nil {
			k, how, err = c.copyFrom(r, &src)
		}
		n += k
		if err != nil || how == atEnd {
			return n, err
		}
		if c.restless {
			c.fidget()
		}
	}
}

// copyFrom reads once, and writes that.
func (c *Conn) copyFrom(r io.Reader, s *source) (n int64, h how, err error) {
	buf := copyPool.Get().(*[copyBuffer]byte)
	defer copyPool.Put(buf)
	got, end := r.Read(buf[:])
	if got > 0 {
		put, err := c.Write(buf[:got])
		if err != nil {
			s.giveBack(got - put)
			return int64(put), byCopy, err
		}
	}
	if end == io.EOF {
		return int64(got), atEnd, nil
	}
	return int64(got), byCopy, end
}

// source is a reader from which the kernel can send.
type source struct {
	r      io.Reader         // nil: it cannot
	limit  *io.LimitedReader // r is in; nil: in none
	socket syscall.RawConn   // nil: r is a file
}

// sourceOf finds out what r is. Files that may block, as pipes do, are none.
func sourceOf(r io.Reader) (s source) {
	if l, ok := r.(*io.LimitedReader); ok {
		s.limit, r = l, l.R
	}
	switch v := revealed(r).(type) {
	case *os.File:
		if info, err := v.Stat(); err == nil && info.Mode().IsRegular() {
			s.r = v
		}
	case *net.TCPConn:
		if raw, err := v.SyscallConn(); err == nil {
			s.r, s.socket = v, raw
		}
	case *net.UnixConn:
		if a, ok := v.LocalAddr().(*net.UnixAddr); !ok || a.Net != "unix" {
			break // datagrams
		}
		if raw, err := v.SyscallConn(); err == nil {
			s.r, s.socket = v, raw
		}
	}
	return s
}

// revealed returns the file or connection whose WriteTo the packages os and net have hidden, to call ReadFrom with it.
func revealed(r io.Reader) any {
	v := reflect.ValueOf(r)
	if v.Kind() != reflect.Struct {
		return r
	}
	var f reflect.Value
	switch v.Type().PkgPath() {
	case "os":
		f = v.FieldByName("File")
	case "net":
		f = v.FieldByName("TCPConn")
	}
	if f.IsValid() && f.CanInterface() {
		return f.Interface()
	}
	return r
}

// giveBack takes back that the last n bytes were read, if the source is a file.
func (s *source) giveBack(n int) {
	f, ok := s.r.(*os.File)
	if !ok {
		return
	}
	if _, err := f.Seek(-int64(n), io.SeekCurrent); err == nil && s.limit != nil {
		s.limit.N += int64(n)
	}
}

// how bytes were sent.
type how int

const (
	notAtAll how = iota // the kernel cannot
	byKernel
	byCopy
	atEnd
)

// sendFrom makes the kernel send from a source, if Writes go to the socket: a chunk at most, so that the next one may go
// elsewhere. It waits for a source without wmu.
func (c *Conn) sendFrom(s *source) (n int64, h how, err error) {
	if s.r == nil {
		return 0, notAtAll, nil
	}
	size := int64(plainChunk)
	if s.limit != nil {
		if size = min(size, s.limit.N); size <= 0 {
			return 0, atEnd, nil
		}
	}
	if s.socket != nil {
		got, err := arrived(s.socket)
		if err != nil {
			return 0, byKernel, os.NewSyscallError("splice", err)
		}
		if size = min(size, got); size == 0 {
			return 0, notAtAll, nil // Read tells why
		}
	}
	if l := c.linked.Load(); l != nil && l.writer.at() != home {
		return 0, notAtAll, nil
	}
	c.wmu.Lock()
	defer c.wmu.Unlock()
	defer c.turn()
	if l, err := c.writesTo(); l != nil || err != nil {
		return 0, notAtAll, err
	}
	file, _ := s.r.(*os.File)
	var at int64
	if file != nil {
		at, _ = file.Seek(0, io.SeekCurrent)
	}
	n, err = c.tcp.ReadFrom(&io.LimitedReader{R: s.r, N: size})
	if err != nil && file != nil {
		file.Seek(at+n, io.SeekStart) // if the deadline has passed before, package net uses memory
	}
	c.sentUnseen(nil, n)
	if s.limit != nil {
		s.limit.N -= n
	}
	switch {
	case err != nil:
		outer, _ := err.(*net.OpError)
		err = c.cause("write", err)
		if outer != nil && errors.As(outer.Err, new(*net.OpError)) { // of a Write
			err = c.fail("write", c.cause("write", outer.Err))
		}
		return n, byKernel, err
	case n == 0:
		return 0, atEnd, nil
	}
	return n, byKernel, nil
}

// arrived waits until a socket has something to read, and returns how much; 0: an end, or what Read fails with. The
// error is one that the kernel reports to one call only.
func arrived(socket syscall.RawConn) (n int64, err error) {
	socket.Read(func(fd uintptr) bool {
		var b [1]byte
		var k int
		k, _, err = unix.Recvfrom(int(fd), b[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
		if err == unix.EAGAIN || err == unix.EINTR {
			err = nil
			return false
		}
		if err == nil && k > 0 {
			queued, _ := unix.IoctlGetInt(int(fd), unix.SIOCINQ)
			n = int64(max(1, queued))
		}
		return true
	})
	return n, err
}

// WriteTo writes what arrives to w until the peer closes its direction; see net.TCPConn. If w has a ReadFrom, WriteTo calls
// that, unless Write is known to do the same.
func (c *Conn) WriteTo(w io.Writer) (n int64, err error) {
	n, err = c.writeTo(w)
	if err != nil && err != io.EOF {
		err = c.opError("writeto", err)
	}
	return n, err
}

func (c *Conn) writeTo(w io.Writer) (int64, error) {
	if readsItself(w) {
		return w.(io.ReaderFrom).ReadFrom(struct{ net.Conn }{c}) // without c's WriteTo
	}
	buf := copyPool.Get().(*[copyBuffer]byte)
	defer copyPool.Put(buf)
	return io.CopyBuffer(struct{ io.Writer }{w}, struct{ io.Reader }{c}, buf[:])
}

// readsItself reports whether w has a ReadFrom that may do other things with the bytes than Write does.
// The one of a bufio.Writer passes them on at once, where Write keeps them until its buffer is full:
// a relay that does not flush depends on it.
func readsItself(w io.Writer) bool {
	switch w.(type) {
	case *Conn, *net.TCPConn, *os.File:
		return false
	}
	_, ok := w.(io.ReaderFrom)
	return ok && w != io.Discard
}

// WriteBuffers writes the contents of v in one operation, and consumes v as net.Buffers.WriteTo does: after an error v has
// the bytes that were not written. The bytes of other Writes do not come between its slices. That method makes a Write of
// each slice.
func (c *Conn) WriteBuffers(v *net.Buffers) (n int64, err error) {
	if consume(v, 0); len(*v) == 0 {
		return v.WriteTo(c.tcp)
	}
	if n, err = c.putBuffers(v); err != nil {
		if s, ok := err.(*os.SyscallError); ok {
			err = s.Err
		}
		err = c.fail("writev", err)
	}
	if c.restless {
		c.fidget()
	}
	return n, err
}

func (c *Conn) putBuffers(v *net.Buffers) (n int64, err error) {
	c.wmu.Lock()
	defer c.wmu.Unlock()
	defer c.turn()
	for len(*v) > 0 {
		l, err := c.writesTo()
		if err != nil {
			return n, err
		}
		var k int64
		if l == nil {
			if k, err = c.writev(v); err != nil {
				err = c.cause("write", err)
			}
		} else {
			k, err = c.putGathered(v)
		}
		n += k
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

// writev writes a chunk of v to the socket. The first slice is not empty.
func (c *Conn) writev(v *net.Buffers) (n int64, err error) {
	var first []byte
	if c.out.Load() < meeting.FirstLen {
		first = make([]byte, meeting.FirstLen)
		first = first[:gather(first, *v)]
	}
	part, size := len(*v), 0
	for i, b := range *v {
		if size += len(b); size > plainChunk {
			part = i
			break
		}
	}
	switch part {
	case 0:
		var k int
		k, err = c.tcp.Write((*v)[0][:plainChunk])
		n = int64(k)
		consume(v, k)
	case len(*v):
		n, err = v.WriteTo(c.tcp)
	default:
		chunk := (*v)[:part]
		n, err = chunk.WriteTo(c.tcp)
		*v = (*v)[part-len(chunk):]
	}
	c.sentUnseen(first[:min(int64(len(first)), n)], n)
	return n, err
}

// putGathered writes the beginning of v: several small slices, or a large one.
func (c *Conn) putGathered(v *net.Buffers) (int64, error) {
	b := (*v)[0]
	if len(*v) > 1 && len(b) < copyBuffer/2 {
		buf := copyPool.Get().(*[copyBuffer]byte)
		defer copyPool.Put(buf)
		if b = buf[:gather(buf[:], *v)]; len(b) == 0 {
			return 0, unix.EFAULT
		}
	}
	k, err := c.putLocked(b)
	consume(v, k)
	return int64(k), err
}

// gather copies the beginning of v into buf, up to memory that is gone, and returns how many bytes.
func gather(buf []byte, v net.Buffers) (n int) {
	for _, b := range v {
		b = b[:min(len(b), len(buf)-n)]
		can := fault.Readable(b)
		if n += copy(buf[n:], b[:can]); can < len(b) || n == len(buf) {
			break
		}
	}
	return n
}

// consume removes the first n bytes of v, and empty slices before the rest.
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
