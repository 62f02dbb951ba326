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

	"github.com/gosdp/gosdp/internal/lockorder"
	"github.com/gosdp/gosdp/internal/spin"
)

// Doorbell wakes one end over the Unix socket on which the two ends met. A byte means "look again".
// The end of the stream means that the peer has unmapped the segment, or that its process has ended.
//
// While a process has many busy connections, their Reads wait for Watch instead, and their sleep words are not set: the
// peers do not ring. A Read for which nothing comes for 2 ms listens here again.
//
// Two goroutines may sleep here: one that reads and one that writes. One of them listens, parked in
// the netpoller. The other waits on a condition, which the listener signals when it wakes up.
//
// No wake-up is lost. A goroutine that is about to sleep sets its sleep word in the shared memory,
// and then looks for the last time. The peer first changes what that look would find, and then
// clears the word and rings. The last look happens in the callback of RawConn.Read: a byte that
// arrives later ends the parking, also if others are unread before it.
type Doorbell struct {
	file *os.File
	raw  syscall.RawConn
	gone atomic.Bool

	// Of the one who listens:
	unread   int  // rings that may be unread in the socket
	parked   bool // it has been in the netpoller
	announce func()
	ready    func() bool
	onRead   func(fd uintptr) bool // made once

	mu       lockorder.Mutex[lockorder.Doorbell]
	cond     sync.Cond // of mu
	listens  bool      // a goroutine is in the netpoller
	deadline time.Time // of file
}

// NewDoorbell returns a Doorbell on a connected, non-blocking Unix socket. It owns the descriptor,
// even if it returns an error.
func NewDoorbell(fd int) (*Doorbell, error) {
	b := &Doorbell{file: os.NewFile(uintptr(fd), "doorbell")}
	b.cond.L = &b.mu
	b.onRead = b.heard
	var err error
	if b.raw, err = b.file.SyscallConn(); err == nil {
		err = b.file.SetReadDeadline(time.Time{}) // the netpoller knows it
	}
	if err != nil {
		b.file.Close()
		return nil, err
	}
	return b, nil
}

// Close ends this end's use of the segment for the peer. No goroutine may sleep.
func (b *Doorbell) Close() { b.file.Close() }

// Gone reports whether the peer has closed its end, as far as Sleep or Look has found out.
func (b *Doorbell) Gone() bool { return b.gone.Load() }

// Ring wakes the peer.
func (b *Doorbell) Ring() { b.raw.Control(ring) }

var ringByte byte

func ring(fd uintptr) {
	for {
		_, _, e := unix.RawSyscall6(unix.SYS_SENDTO, fd, uintptr(unsafe.Pointer(&ringByte)), 1, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, 0, 0)
		if e != unix.EINTR {
			return // EAGAIN: unread bytes wake the peer. EPIPE: it has gone
		}
	}
}

// Look finds out whether the peer has gone. It takes no byte: the netpoller would not see one that it has yet to
// deliver.
func (b *Doorbell) Look() {
	b.raw.Control(func(fd uintptr) {
		p := unix.PollFd{Fd: int32(fd), Events: unix.POLLRDHUP}
		var now unix.Timespec
		if n, _, e := unix.RawSyscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(&p)), 1, uintptr(unsafe.Pointer(&now)), 0, 0, 0); e == 0 && n > 0 {
			b.gone.Store(true)
		}
	})
}

// mostUnread is how many rings are left unread in the socket, because reading one takes as long as sending it. Even the
// smallest buffer holds more.
const mostUnread = 4

// empty reads what the peer has sent, and notes the end.
func (b *Doorbell) empty(fd uintptr) {
	var junk [64]byte
	for {
		n, _, e := unix.RawSyscall6(unix.SYS_RECVFROM, fd, uintptr(unsafe.Pointer(&junk)), uintptr(len(junk)), unix.MSG_DONTWAIT, 0, 0)
		switch {
		case e == unix.EINTR:
			continue
		case e == unix.EAGAIN:
		case e != 0 || n == 0:
			b.gone.Store(true)
		}
		return // what is left wakes the next one who parks
	}
}

// Doze is Sleep for a wait that is left to Watch while that runs, which wakes it by Wake. It reports whether the wait has
// been there alone: without announce.
func (b *Doorbell) Doze(x *spin.Watched, announce func(), ready func() bool, deadline time.Time) (watched bool) {
	Watch.Park(x)
	defer Watch.Unpark()
	b.mu.Lock()
	for Watch.Add(x) {
		b.cond.Wait()
		Watch.Remove(x)
		if ready() || !deadline.IsZero() && !time.Now().Before(deadline) {
			b.mu.Unlock()
			return true
		}
	}
	b.mu.Unlock()
	b.Sleep(announce, ready, deadline)
	return false
}

// Wake makes the goroutines that do not listen look again.
func (b *Doorbell) Wake() {
	b.mu.Lock()
	b.cond.Broadcast()
	b.mu.Unlock()
}

// Watch polls for the Reads of this process while many are busy.
var Watch spin.Watch

// Sleep returns when ready does, which it calls before each parking, and after each wake-up. Before
// that it calls announce, which sets a sleep word. Sleep also returns at the deadline; zero: there is none.
// ready must not block, and must report whether the peer has gone.
func (b *Doorbell) Sleep(announce func(), ready func() bool, deadline time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for {
		announce()
		if ready() || !deadline.IsZero() && !time.Now().Before(deadline) {
			return
		}
		if b.listens {
			b.wait(deadline)
			continue
		}
		b.listen(announce, ready, deadline)
	}
}

// wait waits for the one who listens, but not beyond the deadline.
func (b *Doorbell) wait(deadline time.Time) {
	if !deadline.IsZero() { // that of file is the other's
		defer time.AfterFunc(time.Until(deadline), b.Rouse).Stop()
	}
	b.cond.Wait()
}

// listen parks in the netpoller until ready returns true, or another goroutine may have to look.
func (b *Doorbell) listen(announce func(), ready func() bool, deadline time.Time) {
	b.listens = true
	if !b.deadline.Equal(deadline) {
		b.deadline = deadline
		b.file.SetReadDeadline(deadline)
	}
	b.mu.Unlock()
	b.parked, b.announce, b.ready = false, announce, ready
	err := b.raw.Read(b.onRead)
	b.mu.Lock()
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		b.gone.Store(true)
	}
	b.listens = false
	b.cond.Broadcast()
}

// heard is the callback of RawConn.Read.
func (b *Doorbell) heard(fd uintptr) bool {
	if b.parked {
		b.mu.Lock()
		b.cond.Broadcast() // the byte may be for another goroutine, too
		b.mu.Unlock()
		if b.ready() {
			return true
		}
	}
	if b.unread++; b.parked || b.unread > mostUnread {
		b.empty(fd)
		b.unread = 0
	}
	b.parked = true
	b.announce()
	return b.ready()
}

var past = time.Unix(1, 0)

// Rouse makes the goroutines of this end that sleep look again: after a deadline or the
// connection's state has changed.
func (b *Doorbell) Rouse() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.cond.Broadcast()
	if b.listens && !b.deadline.Equal(past) {
		b.deadline = past
		b.file.SetReadDeadline(past)
	}
}
