package listener

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// peerPID returns the process at the other end of a Unix socket; 0 if c is none,
// or does not tell.
func peerPID(c net.Conn) int {
	sc, ok := c.(syscall.Conn)
	if !ok {
		return 0
	}
	rc, err := sc.SyscallConn()
	if err != nil {
		return 0
	}
	pid := 0
	rc.Control(func(fd uintptr) {
		if cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			pid = int(cred.Pid)
		}
	})
	return pid
}
