//go:build linux

package shm

import (
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gosdp/gosdp/internal/bubble"
	"github.com/gosdp/gosdp/rdma/internal/rnic"
)

// doorbell wakes one end over the Unix socket on which the two ends met. A byte means "look
// again". The end of the stream means that the peer is gone, which the kernel reports however the
// peer's process ended.
//
// Two goroutines may park here: the one in Wait until a record arrives, and one that sends until
// there is room. One of them listens, parked in the netpoller. The other waits on a condition; the
// listener signals it when the peer has cleared its sleep word, and also when it stops listening,
// so that the other can take over.
//
// No wake-up is lost: a goroutine that is about to sleep sets its word in the shared memory, then
// looks at the ring for the last time; the peer moves its index, then looks at the word. So one of
// them sees the other. This happens in the callback of RawConn.Read, where any byte that arrives
// afterwards ends the parking. While the watch polls for the readers that are parked, it clears the
// word of the one in Wait (watch.go).
type doorbell struct {
	conn *os.File
	rc   syscall.RawConn
	q    *QueuePair // whose doorbell it is

	onPark    func(fd uintptr) bool // made once, so that a call allocates nothing
	idleRings int32                 // rings in a row for which nothing had changed
	rings     atomic.Int32          // bytes that may be unread in the socket: how often a word was set since the last drain

	dead atomic.Bool // the peer has gone

	// Guarded by watched.mu, as covered is:
	slot  int16 // the reader's place on the list, from 1; 0: none
	since uint8 // the round in which it came there
	round uint8 // of the watch, when it last woke the reader

	peer atomic.Pointer[doorbell] // the other end, if it is in this process; see local.go

	mu      sync.Mutex
	listens *sleeper // the one in the netpoller; only that one writes it
	in, out sleeper  // the one in Wait, and the one that sends
	late    bool     // a deadline in the past was set, to wake the listener
	noisy   bool     // the peer rings without end

	parked bool // the listener has been in the netpoller since the last drain; onPark's
	slept  bool // it has been there in this call of listenLocked
	listed bool // it was put on the list of watched in that call

	covered bool // its word is clear because the watch looks at its ring; guarded by watched.mu
}

// sleeper is a goroutine that may park.
type sleeper struct {
	woken atomic.Bool // a goroutine of this process wants it to wake up
	cond  bubble.Cond // it waits here while the other one listens; guarded by doorbell.mu
}

// mostIdleRings is how often a peer may ring in a row although nothing has changed. A correct peer
// does so once or twice, when two things happen at once.
const mostIdleRings = 1000

var errIdleRings = violation("bell", "doorbell rung repeatedly without data")

func (b *doorbell) init(q *QueuePair, conn *os.File) error {
	rc, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	b.conn, b.rc, b.q = conn, rc, q
	b.onPark = b.parkOn
	b.in.cond.Make()
	b.out.cond.Make()
	return nil
}

// full reports whether the socket must be drained. The peer says how much room it has when it opens
// its end, which the client does not wait for.
func (b *doorbell) full() bool {
	return b.rings.Load() > max(1, min(drainEvery, int32(b.q.theirs().bytes.Load()/bytesForRing)))
}

// word returns the sleeper's word in the shared memory, which says that it sleeps.
func (b *doorbell) word(s *sleeper) *atomic.Uint32 {
	if s == &b.in {
		return &b.q.theirs().idle
	}
	return &b.q.mine().full
}

// ready reports whether there is something to wake up for.
func (b *doorbell) ready(s *sleeper) bool {
	if s == &b.in {
		return b.q.hasWork()
	}
	return b.q.hasRoom()
}

// ring wakes the peer.
func (b *doorbell) ring() {
	if peer := b.peer.Load(); peer == nil || !peer.ringHere() {
		before := unsent.Load()
		b.rc.Control(sendOrCount)
		if unsent.Load() != before { // this one, most likely
			b.rc.Control(b.sendOrEnd)
		}
	}
}

// unsent counts the bytes that could not be sent.
var unsent atomic.Uint32

// sendOrCount sends a byte, or counts it. It is no method, so that ring allocates nothing.
func sendOrCount(fd uintptr) {
	if !sendByte(fd) {
		unsent.Add(1)
	}
}

// sendOrEnd sends a byte. If that fails, for want of memory, say, the peer would sleep for ever: nobody
// rings again, because its word is clear. So the channel ends, and both ends find a reset.
func (b *doorbell) sendOrEnd(fd uintptr) {
	if !sendByte(fd) {
		b.q.mine().state.CompareAndSwap(stateOpen, stateAborted)
		unix.RawSyscall(unix.SYS_SHUTDOWN, fd, unix.SHUT_RDWR, 0)
	}
}

// sendByte writes a byte, and reports false if it cannot although the peer is there. The peer makes
// sure that there is room, because a byte that does not fit would not wake the sleeper.
//
// The doorbell makes raw system calls, except in drain. None of them blocks, and if the runtime
// knew that one begins, it might wake a thread to watch it.
func sendByte(fd uintptr) bool {
	for {
		_, _, errno := unix.RawSyscall6(unix.SYS_SENDTO, fd, uintptr(unsafe.Pointer(&bellByte)), 1,
			unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, 0, 0)
		switch errno {
		case unix.EINTR:
			continue
		case 0, unix.EAGAIN, unix.EPIPE, unix.ECONNRESET, unix.ENOTCONN:
			return true
		}
		return false
	}
}

var bellByte byte

// wake wakes the sleeper, now or when it next parks.
func (b *doorbell) wake(s *sleeper) {
	s.woken.Store(true)
	b.rouse(s)
}

// rouse makes the sleeper look again.
func (b *doorbell) rouse(s *sleeper) {
	b.mu.Lock()
	b.rouseLocked(s)
	b.mu.Unlock()
}

// rouseLocked is rouse, with the lock.
func (b *doorbell) rouseLocked(s *sleeper) {
	switch {
	case s.cond.Waited():
		s.cond.Broadcast()
	case b.listens == s && !b.late:
		b.late = true
		b.conn.SetReadDeadline(rnic.Past)
	}
}

// up reports whether the sleeper must not sleep.
func (b *doorbell) up(s *sleeper) bool { return s.woken.Load() || b.ready(s) || b.dead.Load() }

// park sleeps until the sleeper is up, and reports whether it slept.
func (b *doorbell) park(s *sleeper) (slept bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for !b.up(s) {
		if b.listens == nil && b.peer.Load() == nil {
			slept = b.listenLocked(s) || slept
			continue
		}
		b.doze(s)
		if !b.up(s) {
			s.cond.Wait(&b.mu)
			slept = true
		}
	}
	b.word(s).Store(0)
	return slept
}

// doze sets the sleeper's word. The peer rings at most once for each time.
func (b *doorbell) doze(s *sleeper) {
	b.rings.Add(1)
	b.word(s).Store(1)
}

// listenLocked parks in the netpoller, without the lock, and reports whether it slept.
func (b *doorbell) listenLocked(s *sleeper) (slept bool) {
	b.listens = s
	if b.late {
		b.late = false
		b.conn.SetReadDeadline(time.Time{})
	}
	b.mu.Unlock()
	b.parked, b.slept = false, false
	err := b.rc.Read(b.onPark)
	watched.remove(b)
	slept = b.slept
	b.mu.Lock()
	b.listens = nil
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		b.dead.Store(true) // this end has closed the socket
	}
	b.other(s).cond.Broadcast()
	return slept
}

func (b *doorbell) other(s *sleeper) *sleeper {
	if s == &b.in {
		return &b.out
	}
	return &b.in
}

// parkOn is the callback of RawConn.Read. It returns true if the listener must wake up.
//
// Bytes stay in the socket for a while: an arrival ends the parking whether or not older bytes are
// unread, and reading would make the kernel wake the peer because there is room again. But they
// must not fill the socket, or the peer could not ring.
func (b *doorbell) parkOn(fd uintptr) bool {
	s, told := b.listens, false
	for {
		b.doze(s)
		if b.up(s) {
			b.idleRings = 0
			return true
		}
		told = b.tellOther(s) || told
		if !b.full() && (told || !b.parked) {
			break
		}
		b.rings.Store(0)
		n := drain(fd)
		if b.parked && !told { // nothing has changed since the ring
			b.idleRings += int32(max(n, 1))
		}
		b.parked = false
	}
	b.parked, b.slept = true, true
	if hungUp(fd) {
		b.dead.Store(true)
		return true
	}
	if b.idleRings > mostIdleRings {
		b.mu.Lock()
		b.noisy = true
		b.mu.Unlock()
		b.dead.Store(true)
		return true
	}
	if s == &b.in {
		watched.add(b)
	}
	return false
}

// tellOther makes the other sleeper look again if the peer has rung for it, and reports whether it
// did.
func (b *doorbell) tellOther(s *sleeper) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	other := b.other(s)
	if !other.cond.Waited() || b.word(other).Load() != 0 {
		return false
	}
	b.idleRings = 0
	other.cond.Broadcast()
	return true
}

const (
	// drainEvery is how often the words may be set before the socket is drained.
	drainEvery = 64
	// bytesForRing is how many bytes of room the peer's socket needs for each of these.
	bytesForRing = 3
	// byteCost is the most that a byte takes of a socket's send buffer. Linux charges 768.
	byteCost = 1 << 10
	// enoughBuffer is a send buffer that does not make the peer drain earlier than drainEvery.
	enoughBuffer = drainEvery * bytesForRing * byteCost
)

// openDoorbell prepares the socket of the end that writes the given direction of the area.
func openDoorbell(fd int, a *area, way int) error {
	size, err := sendBuffer(fd)
	if err == nil && size < enoughBuffer { // as far as net.core.wmem_max allows
		err = os.NewSyscallError("SO_SNDBUF", unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, enoughBuffer/2)) // Linux doubles it
		if err == nil {
			size, err = sendBuffer(fd)
		}
	}
	a.ctl.ways[way].bytes.Store(uint32(size / byteCost))
	return err
}

// sendBuffer returns the size of a socket's send buffer.
func sendBuffer(fd int) (size int, err error) {
	size, err = unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF)
	return size, os.NewSyscallError("SO_SNDBUF", err)
}

// drain reads the bytes that have arrived. If the kernel accepts descriptors, it closes those that
// came with them, which may block; so the runtime is told about this system call.
func drain(fd uintptr) (n int) {
	var junk [512]byte
	for {
		k, _, errno := unix.Syscall6(unix.SYS_RECVFROM, fd, uintptr(unsafe.Pointer(&junk)), uintptr(len(junk)), unix.MSG_DONTWAIT, 0, 0)
		switch {
		case errno == unix.EINTR:
		case errno != 0 || k == 0:
			return n
		default:
			if n += int(k); k < uintptr(len(junk)) || n > mostIdleRings {
				return n
			}
		}
	}
}

// hungUp reports whether the stream has ended.
func hungUp(fd uintptr) bool {
	p := unix.PollFd{Fd: int32(fd), Events: unix.POLLRDHUP}
	var now unix.Timespec
	n, _, errno := unix.RawSyscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(&p)), 1, uintptr(unsafe.Pointer(&now)), 0, 0, 0)
	return errno == 0 && n > 0
}

// alive reports whether the peer's end of the socket is still open.
func (b *doorbell) alive() bool {
	if b.dead.Load() {
		return false
	}
	gone := false
	b.rc.Control(func(fd uintptr) { gone = hungUp(fd) })
	return !gone
}

// close closes the socket and wakes both sleepers.
func (b *doorbell) close() {
	b.dead.Store(true)
	b.rouseAll()
	b.conn.Close()
}

// rouseAll makes both sleepers look again.
func (b *doorbell) rouseAll() {
	b.mu.Lock()
	b.rouseLocked(&b.in)
	b.rouseLocked(&b.out)
	b.mu.Unlock()
}

// why returns the error for a peer that is gone without having said so.
func (b *doorbell) why() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.noisy {
		return errIdleRings
	}
	return os.NewSyscallError("read", syscall.ECONNRESET)
}
