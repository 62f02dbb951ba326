package handshake

import (
	"errors"
	"net"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// awaitFirst returns a function that waits until the first byte or the end arrives on conn,
// for at most d, and reports whether that was the end. It leaves conn to the program: it
// sets no deadline, reads nothing and does not delay Close. An epoll set of its own lets it
// wait.
func awaitFirst(conn net.Conn, d time.Duration) (closedEarly func() bool, err error) {
	sc, ok := conn.(syscall.Conn)
	if !ok {
		return nil, errors.ErrUnsupported
	}
	rc, err := sc.SyscallConn()
	if err != nil {
		return nil, err
	}
	set, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, err
	}
	unix.SetNonblock(set, true) // for the netpoller to take it
	events := os.NewFile(uintptr(set), "epoll")
	failed := rc.Control(func(fd uintptr) {
		event := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLRDHUP}
		err = unix.EpollCtl(set, unix.EPOLL_CTL_ADD, int(fd), &event)
	})
	wait, unready := events.SyscallConn()
	if err = errors.Join(failed, err, unready, events.SetReadDeadline(time.Now().Add(d))); err != nil {
		events.Close()
		return nil, err
	}
	return func() (early bool) {
		defer events.Close()
		var event [1]unix.EpollEvent
		err := wait.Read(func(fd uintptr) bool {
			n, err := unix.EpollWait(int(fd), event[:], 0)
			return n > 0 || err != nil && err != unix.EINTR
		})
		if err != nil {
			return false // the time is over, or the program has closed the connection
		}
		rc.Control(func(fd uintptr) {
			info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
			early = err == nil && info.State != unix.BPF_TCP_ESTABLISHED && info.Bytes_received <= 1 // the end counts as a byte
		})
		return early
	}, nil
}
