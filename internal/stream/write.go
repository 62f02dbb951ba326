//go:build linux

package stream

import (
	"net"
	"os"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gosdp/gosdp/internal/fault"
	"github.com/gosdp/gosdp/internal/shm"
	"github.com/gosdp/gosdp/internal/spin"
)

// writer is the half of the direction to the peer. It belongs to the holder of wmu.
type writer struct {
	half
	ring   shm.Producer
	spin   spin.Room
	grown  bool // the largest area is in use
	joined bool // the gate has the position in the TCP stream
	// capacity is how many bytes TCP buffers for a peer that does not read. No more may be unread there and in the ring, so
	// that all of it fits into TCP when the direction comes home.
	capacity atomic.Int64
	patience atomic.Int64 // TCP_USER_TIMEOUT; 0: none
	back     uint64       // while returning: the position in the ring from which on TCP gets the bytes

	// Of the Write in progress:
	buf   []byte
	n     int
	err   error
	armed int64 // what it knows of the deadline

	onSocket, onReturn func(fd uintptr) bool
	announce           func()
	ready              func() bool
}

func (w *writer) init(l *link) {
	l.measure()
	w.gate, w.ring = l.seg.OutGate(), l.seg.Out()
	w.onSocket, w.onReturn = l.writeSocket, l.writeReturning
	w.announce = w.ring.Sleep
	w.ready = l.writerReady
}

const (
	plainChunk  = 1 << 20  // of a Write on TCP, before it looks whether there is a segment
	linkedChunk = 64 << 10 // of one in a segment, before it tries to move
)

// Write implements the net.Conn Write method. Outbound flow:
//  1. On TCP, as long as there is no segment or this direction is home: the socket's Write, with a count.
//  2. In a segment, on TCP (writeSocket): move if the reader has consented. Otherwise a system call that does
//     not wait, whose bytes are published in the gate; and only then wait for room.
//  3. In the ring (writeRing).
//  4. After a recall (writeReturning): what the reader has left in the ring goes out over TCP, before anything else.
func (c *Conn) Write(b []byte) (n int, err error) {
	if len(b) == 0 {
		return c.tcp.Write(b)
	}
	c.wmu.Lock() // without defer, for a small frame
	n, err = c.putLocked(b)
	c.turn()
	c.wmu.Unlock()
	if err != nil {
		err = c.fail("write", err)
	}
	if c.restless {
		c.fidget()
	}
	return n, err
}

// putLocked is Write with wmu, and with the bare error.
func (c *Conn) putLocked(b []byte) (n int, err error) {
	for len(b) > 0 {
		var k int
		l, err := c.writesTo()
		switch {
		case err != nil:
		case l == nil:
			k, err = c.tcp.Write(b[:min(len(b), plainChunk)])
			c.sent(b[:k])
		default:
			k, err = l.write(b)
		}
		n += k
		if err != nil {
			return n, c.cause("write", err)
		}
		b = b[k:]
	}
	return n, nil
}

// writesTo takes the next step towards a link, and returns the link that Writes use; nil: they go to the socket. wmu is
// held.
func (c *Conn) writesTo() (*link, error) {
	raceWrite()
	if err := c.broken; err != 0 {
		c.broken = unix.EPIPE
		if err != unix.EPIPE && !c.tell() {
			err = unix.EPIPE
		}
		return nil, err
	}
	for {
		switch l := c.linked.Load(); {
		case l != nil && l.writer.at() != home:
			return l, nil
		case l != nil || !c.due() || c.out.Load() == 0 || !c.step(): // the Read after the first Write steps
			c.moments.Write(c.out.Load())
			return nil, nil
		}
	}
}

// write writes to the link. It may write less than b, also nothing, without an error.
func (l *link) write(b []byte) (int, error) {
	c, w := l.c, &l.writer
	w.reclaim()
	switch {
	case w.at() == home: // a visit has just brought it there
		return 0, nil
	case c.is(closed):
		return 0, net.ErrClosed
	case c.is(writeShut):
		return 0, l.shutError()
	case c.violation.Load() != nil:
		return 0, unix.ECONNRESET
	case expired(c.writeDeadline.Load()):
		return 0, os.ErrDeadlineExceeded
	case l.mustLeave() || w.gate.Load().Recalled():
		l.put(&w.half, l.leaveWriter(w.at()))
		l.seeHome()
	}
	call := w.onSocket
	switch w.at() {
	case home:
		return 0, nil
	case inRing:
		return l.writeRing(b)
	case returning:
		call = w.onReturn
	}
	w.buf, w.n, w.err = b, 0, nil
	err := l.raw.Write(call)
	w.reclaim()
	w.buf = nil
	if err == nil {
		err = w.err
	}
	return w.n, err
}

// shutError returns the error of a Write after CloseWrite: a reset that no call has returned yet, as the kernel does.
func (l *link) shutError() error {
	reset := 0
	l.raw.Control(func(fd uintptr) { reset, _ = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_ERROR) })
	if reset != 0 {
		return unix.Errno(reset)
	}
	return unix.EPIPE
}

// writeSocket is the callback of RawConn.Write before a move.
func (l *link) writeSocket(fd uintptr) bool {
	c, w := l.c, &l.writer
	w.reclaim()
	if w.at() == home || l.mustLeave() {
		return true
	}
	if !w.joined {
		switch exclusive(fd, func(k counts) bool { return k.written == c.out.Load() }) {
		case shared:
			l.refuse(errShared)
			return true
		case altered:
			l.refuse(errAltered)
			return true
		case own, ending:
			atStep("to join")
			w.gate.Join(c.out.Load())
			w.joined = true
		}
	}
	for len(w.buf) > 0 {
		if w.joined && w.gate.Move() {
			w.move(inRing)
			atStep("moved")
			l.countMove()
			return true
		}
		atStep("to send")
		n, err := send(fd, w.buf[:min(len(w.buf), linkedChunk)])
		switch {
		case err == unix.EAGAIN:
			w.lend()
			return false
		case err != nil:
			w.err = err
			return true
		}
		c.sent(w.buf[:n])
		w.n += n
		w.buf = w.buf[n:]
		atStep("to publish")
		if w.joined {
			w.gate.Published(n)
			atStep("published")
			l.wakeReader()
		}
	}
	return true
}

// writeReturning is the callback of RawConn.Write after a recall.
func (l *link) writeReturning(fd uintptr) bool {
	w := &l.writer
	w.reclaim()
	if w.at() == home {
		return true
	}
	done, err := l.sendRest(fd)
	switch {
	case err == unix.EAGAIN:
		w.lend()
		return false
	case err != nil:
		w.err = err
	case done:
		l.bring(&w.half)
	}
	return true
}

// sendRest sends over TCP what the reader has left in the ring, without waiting.
func (l *link) sendRest(fd uintptr) (done bool, err error) {
	w := &l.writer
	for {
		rest := w.ring.Rest(w.back)
		if len(rest) == 0 {
			atStep("to be home")
			w.gate.Home()
			l.wakeReader()
			return true, nil
		}
		rest = rest[:min(len(rest), linkedChunk)] // the kernel takes less of a large piece than it has room for
		n, err := send(fd, rest)
		if err != nil {
			return false, err
		}
		l.c.mu.Lock()
		l.c.sent(rest[:n])
		l.c.bothOut += uint64(n)
		l.c.mu.Unlock()
		w.back += uint64(n)
		atStep("sent a rest")
	}
}

// send writes to the socket without waiting.
func send(fd uintptr, b []byte) (int, error) {
	for {
		n, _, e := unix.Syscall6(unix.SYS_SENDTO, fd, uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, 0, 0)
		switch e {
		case 0:
			return int(n), nil
		case unix.EINTR:
		default:
			return 0, e
		}
	}
}

// writeRing writes to the ring, or sleeps until there may be room.
func (l *link) writeRing(b []byte) (n int, err error) {
	w := &l.writer
	l.limit()
	if fault.Mapped(b) {
		b = b[:min(len(b), linkedChunk)]
		if b = b[:fault.Readable(b)]; len(b) == 0 {
			return 0, unix.EFAULT
		}
	}
	for len(b) > 0 && !w.gate.Load().Recalled() {
		k, err := w.ring.Put(b)
		if err != nil {
			l.violated(err)
			return n, unix.ECONNRESET
		}
		if k == 0 {
			break
		}
		l.wakeReader()
		n += k
		b = b[k:]
	}
	if n > 0 || len(b) == 0 {
		return n, nil
	}
	w.armed = l.c.writeDeadline.Load()
	if l.widen() || w.spin.Spin(w.ready) {
		return 0, nil
	}
	return 0, l.sleepWriter()
}

// hesitate is how long a Write waits for room before the ring grows. A peer that reads makes room earlier, and fresh
// memory costs more than that wait. Tests change it.
var hesitate = time.Millisecond

// sleepWriter waits for room on the doorbell, and makes some if the peer does not. If there is none within
// TCP_USER_TIMEOUT, that ends the connection.
func (l *link) sleepWriter() error {
	w := &l.writer
	at := until(w.armed)
	l.measure()
	if l.limit(); w.ring.CanGrow() {
		soon := time.Now().Add(hesitate)
		if !at.IsZero() && at.Before(soon) {
			soon = at
		}
		l.bell.Sleep(w.announce, w.ready, soon)
		w.ring.Awake()
		if w.ready() || l.grow() {
			return nil
		}
	}
	var last time.Time
	if p := w.patience.Load(); p > 0 {
		if last = time.Now().Add(time.Duration(p)); at.IsZero() || last.Before(at) {
			at = last
		}
	}
	l.bell.Sleep(w.announce, w.ready, at)
	w.ring.Awake()
	if last.IsZero() || time.Now().Before(last) || w.ready() {
		return nil
	}
	l.c.broken = unix.EPIPE
	l.abort()
	return unix.ETIMEDOUT
}

// abort resets the TCP connection, and makes all calls look.
func (l *link) abort() {
	l.raw.Control(func(fd uintptr) {
		unspecified := unix.RawSockaddr{Family: unix.AF_UNSPEC} // package unix has no such address
		unix.Syscall(unix.SYS_CONNECT, fd, uintptr(unsafe.Pointer(&unspecified)), unix.SizeofSockaddrAny)
	})
	l.seg.Leave()
	l.bell.Ring()
	l.bell.Rouse()
}

// measure sets capacity and patience. The kernel takes at least seven eighths of the size of its send buffer, because the
// peer's receive buffer takes some, too.
func (l *link) measure() {
	size, ms := 0, 0
	l.raw.Control(func(fd uintptr) {
		size, _ = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_SNDBUF)
		ms, _ = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT)
	})
	l.writer.capacity.Store(int64(size / 8 * 7))
	l.writer.patience.Store(int64(time.Duration(ms) * time.Millisecond))
}

// limit keeps the ring within what capacity leaves.
func (l *link) limit() {
	w := &l.writer
	onTCP := max(0, int64(w.gate.Load().Sent()-w.ring.Before()))
	w.ring.Limit(int(max(0, w.capacity.Load()-onTCP)))
}

// widen lets the ring use its second area, if the budget allows it.
func (l *link) widen() bool {
	w := &l.writer
	if w.ring.Wide() || w.gate.Load().Recalled() || !l.charge(shm.Medium) {
		return false
	}
	w.ring.Widen()
	return true
}

// grow makes the ring as large as what TCP would buffer, if the budget allows it: programs that write before they read
// must not stop.
func (l *link) grow() bool {
	w := &l.writer
	if !w.ring.CanGrow() || w.gate.Load().Recalled() || !w.grown && !l.charge(shm.Largest) {
		return false
	}
	grown := w.ring.Grow()
	switch {
	case grown:
		w.grown = true
	case !w.grown:
		l.discharge(shm.Largest)
	}
	return grown
}

// charge charges the budget for memory of the ring. Without it the connection comes home: TCP has room.
func (l *link) charge(bytes int) bool {
	switch {
	case l.c.policy.take(bytes):
		l.charged += bytes
		return true
	case !l.seg.Leaving():
		l.c.crowded()
		l.leave()
	}
	return false
}

func (l *link) discharge(bytes int) {
	l.charged -= bytes
	l.c.policy.give(bytes)
}

// shrink gives back what grow took, if a ring that is in use does not need it any more and no Write is in progress.
func (l *link) shrink() {
	c, w := l.c, &l.writer
	if !c.wmu.TryLock() {
		return
	}
	defer c.wmu.Unlock()
	if w.at() == inRing && w.grown && w.ring.Shrink() {
		w.grown = false
		l.discharge(shm.Largest)
	}
}

// writerReady reports whether a Write that sleeps has something to do.
func (l *link) writerReady() bool {
	c := l.c
	l.limit()
	return l.writer.ring.HasRoom() || l.writer.gate.Load().Recalled() || l.bell.Gone() ||
		c.state.Load()&(closed|writeShut) != 0 || c.violation.Load() != nil || c.writeDeadline.Load() != l.writer.armed
}

// leaveWriter brings the direction home as far as it can without waiting, and returns where it is then. The
// caller has the half.
func (l *link) leaveWriter(at place) place {
	c, w := l.c, &l.writer
	switch at {
	case onTCP:
		w.gate.Leave()
		l.wakeReader()
		return home
	case inRing:
		recalled := w.gate.Load().Recalled() // before the reader's position, which is final then
		unread, err := w.ring.Unread()
		atStep("looked")
		switch {
		case err != nil:
			l.violated(err)
			return at
		case recalled:
			atStep("heard the recall")
			w.back = w.ring.Taken()
		case !l.bell.Gone():
			return at // the reader will recall it
		case unread > 0:
			c.broke(unix.ECONNRESET)
			return home
		case w.gate.Leave():
			return home
		default:
			return at // it was recalled in this moment: the next look finds that
		}
	}
	result := returning
	l.raw.Control(func(fd uintptr) {
		done, err := l.sendRest(fd)
		if err == unix.EAGAIN {
			return
		}
		if result = home; !done {
			c.broke(err)
		}
	})
	return result
}

// broke notes why the connection has ended, for the program's next call: the kernel tells it once. wmu is held, or the half
// of the writer.
func (c *Conn) broke(err error) {
	if errno, ok := err.(unix.Errno); ok && errno != unix.EPIPE { // of which a call has been told
		c.broken = errno
		c.state.Or(cut)
	}
}
