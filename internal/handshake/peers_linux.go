package handshake

import (
	"errors"
	"net"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// closeCheck is how often awaitFirst looks whether the program has closed the connection. An
// epoll set does not report that.
const closeCheck = 250 * time.Millisecond

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
	end := time.Now().Add(d)
	limit := func() error { return events.SetReadDeadline(time.Now().Add(min(closeCheck, time.Until(end)))) }
	if err = errors.Join(failed, err, unready, limit()); err != nil {
		events.Close()
		return nil, err
	}
	return func() (early bool) {
		defer events.Close()
		var event [1]unix.EpollEvent
		arrived := func(fd uintptr) bool {
			n, err := unix.EpollWait(int(fd), event[:], 0)
			return n > 0 || err != nil && err != unix.EINTR
		}
		for wait.Read(arrived) != nil {
			closed := rc.Control(func(uintptr) {}) != nil
			if closed || !time.Now().Before(end) || limit() != nil {
				return false
			}
		}
		rc.Control(func(fd uintptr) {
			if info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
				early = endedEarly(info)
			}
		})
		return early
	}, nil
}

// endedEarly reports whether the peer has ended or reset a connection, on which no byte had
// arrived, before this end was ended. A server that answers the end of this direction with its
// own does what many do.
func endedEarly(info *unix.TCPInfo) bool {
	switch info.State {
	case unix.BPF_TCP_CLOSE_WAIT, unix.BPF_TCP_LAST_ACK:
		return info.Bytes_received <= 1 // the end counts as a byte
	case unix.BPF_TCP_CLOSE: // by a reset, or after both ends
		return info.Bytes_received == 0
	}
	return false
}
