package engine

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// ackNow makes the kernel acknowledge what has arrived immediately. The peer is closing, and
// waits until it knows that nothing was lost; a delayed acknowledgement may take 40 ms. The caller
// must not hold mu.
func (c *Conn) ackNow() {
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
