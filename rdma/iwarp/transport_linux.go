package iwarp

import (
	"io"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gosdp/gosdp/internal/spin"
	"github.com/gosdp/gosdp/rdma/internal/rnic"
)

// newTransport uses the descriptor itself if the connection is a socket. A connection that a
// program has wrapped may have a descriptor too, but its own Read and Write must be called.
func newTransport(c net.Conn) (transport, error) {
	var sc syscall.Conn
	switch c := c.(type) {
	case *net.TCPConn:
		sc = c
	case *net.UnixConn:
		sc = c
	default:
		return newStreamTransport(c), nil
	}
	rc, err := sc.SyscallConn()
	if err != nil {
		return nil, err
	}
	t := &rawTransport{conn: c, rc: rc}
	t.onRead, t.onWrite, t.onStep = t.readable, t.writable, t.runStep
	t.join()
	return t, nil
}

// wire connects the ends for the race detector.
var wire rnic.Wire

// rawTransport is a kernel socket without a goroutine of its own: a goroutine that waits is parked
// in the netpoller on the descriptor.
//
// A wake-up is a deadline in the past. The goroutine that is woken clears the deadline before it
// clears its flag, so no wake-up is lost, although one may be found late.
type rawTransport struct {
	conn net.Conn
	rc   syscall.RawConn

	readWoken, writeWoken atomic.Bool

	// Arguments and results of the callbacks, which are made once so that a call allocates
	// nothing. The first group belongs to the reading goroutine, the second to the writing one.
	onRead   func(fd uintptr) bool
	spin     spin.Waiter
	toSelf   atomic.Bool // the other end is in this process
	parked   bool        // this read has parked
	answered int64       // written, when the last wait began
	owed     bool        // a read without wait took the wake-up of one with wait
	sink     sink
	wait     bool
	readN    int
	readErr  error
	readVec  [2]unix.Iovec

	onWrite  func(fd uintptr) bool
	pieces   [][]byte
	writeN   int
	writeErr error
	written  atomic.Int64 // bytes, so far
	writeVec [2*maxBatch + 2]unix.Iovec

	onStep func(fd uintptr) bool
	step   func() bool
	stepFD uintptr // the descriptor, while waitWrite's step may write
}

func (t *rawTransport) read(s sink, wait bool) (int, error) {
	if wait && t.owed {
		t.owed = false
		return 0, errWoken
	}
	for {
		t.sink, t.wait, t.parked = s, wait, false
		err := t.rc.Read(t.onRead)
		t.sink = nil
		if err == nil {
			if t.parked {
				t.spin.Woken()
			}
			return t.readN, t.readErr
		}
		if err := t.readBack(err); err != nil {
			return 0, err
		}
		if wait {
			return 0, errWoken
		}
		t.owed = true
	}
}

// readBack clears the deadline of a wake-up. It returns any other error.
func (t *rawTransport) readBack(err error) error {
	if !isTimeout(err) {
		return err
	}
	if err := t.conn.SetReadDeadline(time.Time{}); err != nil {
		return err
	}
	t.readWoken.Store(false)
	return nil
}

func (t *rawTransport) readable(fd uintptr) bool {
	a, b := t.sink.space()
	n, errno := readv(fd, a, b, &t.readVec)
	switch {
	case errno == unix.EAGAIN:
		t.readN, t.readErr = 0, nil
		t.sink.got(0)
		if t.wait && !t.parked {
			if !t.toSelf.Load() && t.look(fd) {
				return true
			}
			t.parked = true
		}
		if t.wait {
			t.sink.parking()
		}
		return !t.wait
	case errno != 0:
		t.readN, t.readErr = 0, os.NewSyscallError("read", errno)
	case n == 0 && len(a)+len(b) > 0:
		t.readN, t.readErr = 0, io.EOF
	default:
		t.readN, t.readErr = n, nil
	}
	t.sink.got(t.readN)
	return true
}

// look tries to read until something arrives or it is woken, for as long as polling pays, and
// reports whether there is something to return.
func (t *rawTransport) look(fd uintptr) (found bool) {
	t.wait = false // readable must neither park nor poll
	found = t.spin.Spin(0, func() bool {
		if t.readWoken.Load() {
			return true
		}
		t.readable(fd)
		return t.came()
	}, t.hurried) && t.came()
	t.wait = true
	if found && !t.hurried() {
		t.spin.Needless()
	}
	t.answered = t.written.Load()
	return found
}

// bulk is how many bytes at once show that the peer streams, unless as much was sent to it: then it
// answers. Polling for a stream only makes reads smaller: 1 MB Writes run at 0.88 of their rate.
const bulk = 48 << 10

// hurried reports whether polling paid off.
func (t *rawTransport) hurried() bool {
	return t.came() && (t.readN < bulk || t.written.Load()-t.answered >= bulk)
}

// came reports whether there is something to return.
func (t *rawTransport) came() bool { return t.readN > 0 || t.readErr != nil }

func (t *rawTransport) setBusyPoll(d time.Duration) { t.spin.SetBusyPoll(d) }

func (t *rawTransport) wakeRead() {
	if !t.readWoken.Swap(true) {
		t.conn.SetReadDeadline(rnic.Past)
	}
}

func (t *rawTransport) write(pieces [][]byte) (int, error) {
	t.pieces = pieces
	if fd := t.stepFD; fd != 0 { // called from step, which already has the descriptor
		t.writable(fd)
		return t.writeN, t.writeErr
	}
	for {
		err := t.rc.Write(t.onWrite)
		if err == nil {
			return t.writeN, t.writeErr
		}
		if err := t.writeBack(err); err != nil {
			return 0, err
		}
	}
}

func (t *rawTransport) writeBack(err error) error {
	if !isTimeout(err) {
		return err
	}
	if err := t.conn.SetWriteDeadline(time.Time{}); err != nil {
		return err
	}
	t.writeWoken.Store(false)
	return nil
}

func (t *rawTransport) writable(fd uintptr) bool {
	n, errno := writev(fd, t.pieces, &t.writeVec)
	t.pieces, t.writeN, t.writeErr = nil, n, nil
	t.written.Add(int64(max(n, 0)))
	if errno != 0 && errno != unix.EAGAIN {
		t.writeErr = os.NewSyscallError("write", errno)
	}
	return true
}

func (t *rawTransport) waitWrite(step func() bool) error {
	t.step = step
	err := t.rc.Write(t.onStep)
	t.step = nil
	if err == nil {
		return nil
	}
	if err := t.writeBack(err); err != nil {
		return err
	}
	return errWoken
}

// runStep runs step with the descriptor at hand: RawConn.Write holds the descriptor's write lock,
// so step must not call it again.
func (t *rawTransport) runStep(fd uintptr) bool {
	t.stepFD = fd
	done := t.step()
	t.stepFD = 0
	return done
}

func (t *rawTransport) wakeWrite() {
	if !t.writeWoken.Swap(true) {
		t.conn.SetWriteDeadline(rnic.Past)
	}
}

func (t *rawTransport) unsent() (total, inProcess int) {
	t.rc.Control(func(fd uintptr) {
		total, _ = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ)
		if total == 0 {
			return
		}
		// The count does not change any more when the connection is reset.
		const tcpClose = 7
		info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		if err == nil && info.State == tcpClose {
			total = 0
		}
	})
	return total, 0
}

func (t *rawTransport) settled() bool { return true }
func (t *rawTransport) settle() error { return nil }

func (t *rawTransport) closeWrite() {
	if c, ok := t.conn.(interface{ CloseWrite() error }); ok {
		c.CloseWrite()
	}
}

func (t *rawTransport) close() error {
	t.leave()
	return t.conn.Close()
}

// detach returns the connection, without the deadline of a wake-up.
func (t *rawTransport) detach() net.Conn {
	t.leave()
	t.conn.SetDeadline(time.Time{})
	return t.conn
}

func (t *rawTransport) abort() error {
	t.leave()
	lingerZero(t.conn)
	return t.conn.Close()
}

// readv reads into a, then b.
func readv(fd uintptr, a, b []byte, vec *[2]unix.Iovec) (int, syscall.Errno) {
	if len(a) == 0 {
		a, b = b, nil
	}
	if len(a) == 0 {
		return 0, 0
	}
	for {
		var n uintptr
		var errno syscall.Errno
		if len(b) == 0 {
			n, _, errno = unix.Syscall(unix.SYS_READ, fd, uintptr(unsafe.Pointer(&a[0])), uintptr(len(a)))
		} else {
			setIovec(&vec[0], a)
			setIovec(&vec[1], b)
			n, _, errno = unix.Syscall(unix.SYS_READV, fd, uintptr(unsafe.Pointer(&vec[0])), 2)
			*vec = [2]unix.Iovec{}
		}
		switch errno {
		case 0:
			wire.Acquire()
			return int(n), 0
		case unix.EINTR:
		default:
			return 0, errno
		}
	}
}

// writev writes as much of the pieces as the socket accepts. There are at most len(vec).
func writev(fd uintptr, pieces [][]byte, vec *[2*maxBatch + 2]unix.Iovec) (int, syscall.Errno) {
	k, only := 0, []byte(nil)
	for _, p := range pieces {
		if len(p) > 0 {
			setIovec(&vec[k], p)
			only = p
			k++
		}
	}
	defer clear(vec[:k])
	if k == 0 {
		return 0, 0
	}
	wire.Release()
	for {
		var n uintptr
		var errno syscall.Errno
		if k == 1 {
			n, _, errno = unix.Syscall(unix.SYS_WRITE, fd, uintptr(unsafe.Pointer(&only[0])), uintptr(len(only)))
		} else {
			n, _, errno = unix.Syscall(unix.SYS_WRITEV, fd, uintptr(unsafe.Pointer(&vec[0])), uintptr(k))
		}
		switch errno {
		case 0:
			return int(n), 0
		case unix.EINTR:
		default:
			return 0, errno
		}
	}
}

func setIovec(v *unix.Iovec, p []byte) {
	v.Base = &p[0]
	v.SetLen(len(p))
}
