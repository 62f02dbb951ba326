package handshake

import (
	"context"
	"errors"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gosdp/gosdp/internal/interrupt"
	"github.com/gosdp/gosdp/internal/timing"
)

// arrivals waits for bytes on a socket. An epoll set of its own leaves the deadlines to the program,
// and does not delay its Close. The zero value has no set yet.
type arrivals struct {
	set *os.File
	raw syscall.RawConn // of set
}

// open makes the set, with the socket of rc. What has arrived already is reported too.
func (a *arrivals) open(rc syscall.RawConn) error {
	set, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return err
	}
	unix.SetNonblock(set, true) // for the netpoller to take it
	f := os.NewFile(uintptr(set), "epoll")
	closed := rc.Control(func(fd uintptr) {
		// Bytes that remain unread are reported once.
		event := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLRDHUP | unix.EPOLLET}
		err = unix.EpollCtl(set, unix.EPOLL_CTL_ADD, int(fd), &event)
	})
	raw, unready := f.SyscallConn()
	if err = errors.Join(closed, err, unready); err != nil {
		f.Close()
		return err
	}
	a.set, a.raw = f, raw
	return nil
}

// wait returns true when something has arrived since the last call, or the peer has ended. It returns
// false when ctx is done, and from time to time: the caller then looks whether the program has closed the connection,
// which an epoll set does not report. Without a descriptor for the set it only pauses.
func (a *arrivals) wait(ctx context.Context, rc syscall.RawConn) bool {
	if a.set == nil && a.open(rc) != nil {
		sleep(ctx, time.Millisecond)
		return false
	}
	a.set.SetReadDeadline(time.Now().Add(timing.Closed))
	defer interrupt.On(ctx, func() { a.set.SetReadDeadline(time.Unix(1, 0)) })()
	var event [1]unix.EpollEvent
	return a.raw.Read(func(fd uintptr) bool {
		n, err := unix.EpollWait(int(fd), event[:], 0)
		return n > 0 || err != nil && err != unix.EINTR
	}) == nil
}

func (a *arrivals) close() {
	if a.set != nil {
		a.set.Close()
	}
}
