package iwarp

import (
	"encoding/binary"
	"net"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/gosdp/gosdp/internal/spin"
)

// replies decides how long dials look for their Reply before they park.
var replies spin.Habit

// lookForReply reports whether a whole Reply can be read from c. If it returns false, the caller
// should park.
func lookForReply(c net.Conn) bool {
	sc, ok := c.(syscall.Conn)
	if !ok {
		return false
	}
	rc, err := sc.SyscallConn()
	if err != nil {
		return false
	}
	whole := false
	rc.Control(func(fd uintptr) {
		var p [1]unix.PollFd
		came := false
		replies.For(func() (bool, bool) {
			// A read, even one that peeks, would take an error that belongs to the reader.
			p[0] = unix.PollFd{Fd: int32(fd), Events: unix.POLLIN}
			n, err := unix.Poll(p[:], 0)
			came = n > 0 && err == nil
			return came, came
		})
		whole = came && wholeFrame(int(fd))
	})
	return whole
}

// wholeFrame reports whether the bytes that can be read are a whole MPA frame.
func wholeFrame(fd int) bool {
	there, err := unix.IoctlGetInt(fd, unix.SIOCINQ)
	if err != nil || there < frameHeaderLen {
		return false
	}
	var header [frameHeaderLen]byte
	n, _, err := unix.Recvfrom(fd, header[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
	return err == nil && n == len(header) &&
		there >= frameHeaderLen+int(binary.BigEndian.Uint16(header[KeyLen+2:]))
}
