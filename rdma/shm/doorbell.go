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

	"github.com/gosdp/gosdp/rdma/internal/rnic"
)

// bell is the doorbell of one end, over the Unix socket that the two ends met
// on. A byte that comes means "look again", the end of the stream that the peer
// is gone: the kernel sees to that whatever became of it.
//
// Two goroutines may park here: the one in Wait until something comes, and one
// that wants to write until there is room. One of them listens, parked in the
// netpoller; the other sits on a condition, and the listener tells it when the
// peer has cleared its sleep word. When the listener leaves, the other takes its
// place.
//
// No wake-up is lost: who goes to sleep sets its word in the shared memory, then
// looks at the ring for the last time; the peer moves its index, then looks at
// the word. One of the two sees the other. The word is set and the ring looked
// at inside RawConn.Read's callback, where a byte that comes afterwards ends the
// parking, however soon it comes.
type doorbell struct {
	conn *os.File
	rc   syscall.RawConn
	q    *QueuePair // whose bell it is

	onPark    func(fd uintptr) bool // bound once, so that a call allocates nothing
	listener  *sleeper              // the argument of onPark
	idleRings int32                 // times that it was rung for nothing, in a row
	rings     atomic.Int32          // that may be unread in the socket: how often a word was set since
	most      int32                 // of them before it drains the socket

	dead atomic.Bool // the peer has gone

	mu      sync.Mutex
	listens *sleeper // who is in the netpoller
	in, out sleeper  // the one in Wait, and the one that wants to write
	late    bool     // a deadline in the past has been set, to get the listener out
	noisy   bool     // the peer rings without end

	parked bool // the listener has been in the netpoller since the last drain; onPark's
	slept  bool // and at all, in this call of listen
}

// sleeper is one who may park.
type sleeper struct {
	woken atomic.Bool // a goroutine of this process wants it to wake up
	cond  rnic.Cond   // it waits here while the other one listens; guarded by doorbell.mu
}

// mostIdleRings is how often a peer may ring in a row when nothing has changed. A
// good one does so once or twice, when two things happen at once.
const mostIdleRings = 1000

var errIdleRings = violation("bell", "it rings and rings, and nothing has come")

func (b *doorbell) init(q *QueuePair, conn *os.File) error {
	rc, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	b.conn, b.rc, b.q = conn, rc, q
	b.most = max(1, min(drainEvery, int32(q.theirs().bytes.Load()/bytesForRing)))
	b.onPark = b.parkOn
	return nil
}

// word is the sleeper's in the shared memory: "I sleep".
func (b *doorbell) word(s *sleeper) *atomic.Uint32 {
	if s == &b.in {
		return &b.q.theirs().idle
	}
	return &b.q.mine().full
}

// ready reports that there is something to get up for.
func (b *doorbell) ready(s *sleeper) bool {
	if s == &b.in {
		return b.q.some()
	}
	return b.q.hasRoom()
}

// ring wakes the peer.
func (b *doorbell) ring() { b.rc.Control(sendByte) }

// sendByte writes a byte. The peer sees to it that there is room: a byte that finds none
// wakes nobody.
//
// The bell's system calls are raw ones, except in drain. None of them waits, and the
// runtime, told that one begins, may wake up a thread to watch over it.
func sendByte(fd uintptr) {
	for {
		_, _, errno := unix.RawSyscall6(unix.SYS_SENDTO, fd, uintptr(unsafe.Pointer(&bellByte)), 1,
			unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, 0, 0)
		if errno != unix.EINTR {
			return
		}
	}
}

var bellByte byte

// wake gets the sleeper up, now or when it next parks.
func (b *doorbell) wake(s *sleeper) {
	s.woken.Store(true)
	b.mu.Lock()
	b.rouseLocked(s)
	b.mu.Unlock()
}

// rouseLocked makes the sleeper look again.
func (b *doorbell) rouseLocked(s *sleeper) {
	switch {
	case s.cond.Waited():
		s.cond.Broadcast()
	case b.listens == s && !b.late:
		b.late = true
		b.conn.SetReadDeadline(rnic.Past)
	}
}

// up reports that the sleeper need not sleep.
func (b *doorbell) up(s *sleeper) bool { return s.woken.Load() || b.ready(s) || b.dead.Load() }

// park sleeps until the sleeper is up, and reports whether it has slept.
func (b *doorbell) park(s *sleeper) (slept bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for !b.up(s) {
		if b.listens == nil {
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

// doze sets the sleeper's word. The peer rings once for each time at most.
func (b *doorbell) doze(s *sleeper) {
	b.rings.Add(1)
	b.word(s).Store(1)
}

// listenLocked parks in the netpoller, without the lock, and reports whether it had to.
func (b *doorbell) listenLocked(s *sleeper) (slept bool) {
	b.listens = s
	if b.late {
		b.late = false
		b.conn.SetReadDeadline(time.Time{})
	}
	b.mu.Unlock()
	b.listener, b.parked, b.slept = s, false, false
	err := b.rc.Read(b.onPark)
	b.listener, slept = nil, b.slept
	b.mu.Lock()
	b.listens = nil
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		b.dead.Store(true) // closed, by this end
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

// parkOn is RawConn.Read's callback: it reports that the listener is to get up.
//
// The bytes stay in the socket for a while: each arrival ends the parking, whether
// or not something is unread, and to read has the kernel tell the peer that there
// is room again, which wakes it for nothing. They must not fill the socket, or the
// peer could not ring.
func (b *doorbell) parkOn(fd uintptr) bool {
	s, told := b.listener, false
	for {
		b.doze(s)
		if b.up(s) {
			b.idleRings = 0
			return true
		}
		told = b.tellOther(s) || told
		if b.rings.Load() <= b.most && (told || !b.parked) {
			break
		}
		b.rings.Store(0)
		n := drain(fd)
		if b.parked && !told { // it was rung for nothing
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
	return false
}

// tellOther has the other sleeper look again if the peer has rung for it, and reports
// whether it has.
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
	// drainEvery is how often the sleepers' words are set until the socket is drained, at most.
	drainEvery = 64
	// bytesForRing is how many bytes the peer's socket must have room for with each.
	bytesForRing = 3
	// byteCost is what a byte takes of a socket's send buffer, at most. Linux charges
	// 768.
	byteCost = 1 << 10
	// enoughBuffer is a send buffer that has the peer drain no earlier than it likes.
	enoughBuffer = drainEvery * bytesForRing * byteCost
)

// openDoorbell prepares the socket of the end that writes the given way of the area.
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

// drain takes the bytes that have come. Where the kernel accepts descriptors with them
// it closes those, which may block: so the runtime is told.
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

// hungUp reports that the stream has ended.
func hungUp(fd uintptr) bool {
	p := unix.PollFd{Fd: int32(fd), Events: unix.POLLRDHUP}
	var now unix.Timespec
	n, _, errno := unix.RawSyscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(&p)), 1, uintptr(unsafe.Pointer(&now)), 0, 0, 0)
	return errno == 0 && n > 0
}

// alive reports that the peer's end of the socket is open.
func (b *doorbell) alive() bool {
	if b.dead.Load() {
		return false
	}
	gone := false
	b.rc.Control(func(fd uintptr) { gone = hungUp(fd) })
	return !gone
}

// close ends the socket; who is parked gets up.
func (b *doorbell) close() {
	b.dead.Store(true)
	b.rouseAll()
	b.conn.Close()
}

// rouseAll has both sleepers look again.
func (b *doorbell) rouseAll() {
	b.mu.Lock()
	b.rouseLocked(&b.in)
	b.rouseLocked(&b.out)
	b.mu.Unlock()
}

// why is what it means that the peer has gone without a word.
func (b *doorbell) why() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.noisy {
		return errIdleRings
	}
	return os.NewSyscallError("read", syscall.ECONNRESET)
}
