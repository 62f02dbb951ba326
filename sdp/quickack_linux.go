package sdp

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// ackNow has the kernel acknowledge at once what has come: the peer closes, and
// waits until it knows that nothing of it was lost. By itself an acknowledgement
// may take 40 ms.
func (c *conn) ackNow() {
	sc, ok := c.tcp.(syscall.Conn)
	if !ok {
		return
	}
	if rc, err := sc.SyscallConn(); err == nil {
		rc.Control(func(fd uintptr) {
			unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_QUICKACK, 1)
		})
	}
}
