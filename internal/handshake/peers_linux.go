package handshake

import (
	"context"
	"errors"
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// awaitFirst returns a function that waits until the first byte or the end arrives on conn,
// for at most d, and reports whether that was the end. It leaves conn to the program: it
// sets no deadline, reads nothing and does not delay Close.
func awaitFirst(conn net.Conn, d time.Duration) (closedEarly func() bool, err error) {
	sc, ok := conn.(syscall.Conn)
	if !ok {
		return nil, errors.ErrUnsupported
	}
	rc, err := sc.SyscallConn()
	if err != nil {
		return nil, err
	}
	var a arrivals
	if err := a.open(rc); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), d)
	return func() (early bool) {
		defer cancel()
		defer a.close()
		for !a.wait(ctx, rc) {
			if closed := rc.Control(func(uintptr) {}) != nil; closed || ctx.Err() != nil {
				return false
			}
		}
		control(conn, func(fd int) {
			if info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
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
