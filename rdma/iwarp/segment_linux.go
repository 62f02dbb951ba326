package iwarp

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// segmentSize returns how many bytes a TCP segment of c carries, or Ethernet's 1,460 if that is
// unknown.
func segmentSize(c net.Conn) int {
	const ethernet = 1460
	sc, ok := c.(syscall.Conn)
	if !ok {
		return ethernet
	}
	rc, err := sc.SyscallConn()
	if err != nil {
		return ethernet
	}
	mss := 0
	rc.Control(func(fd uintptr) {
		mss, err = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_MAXSEG)
	})
	if err != nil || mss == 0 {
		return ethernet
	}
	return mss
}
