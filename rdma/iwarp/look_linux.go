package iwarp

import (
	"encoding/binary"
	"net"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/gosdp/gosdp/internal/spin"
)

// replies is how dials look for their Reply before they park.
var replies spin.Habit

// lookForReply reports that a whole Reply is there to be read on c. If not, it is
// better to park.
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
			// To read, if only to peek, would take an error that the reader is to see.
			p[0] = unix.PollFd{Fd: int32(fd), Events: unix.POLLIN}
			n, err := unix.Poll(p[:], 0)
			came = n > 0 && err == nil
			return came, came
		})
		whole = came && wholeFrame(int(fd))
	})
	return whole
}

// wholeFrame reports that what there is to read is an MPA frame and not a part of
// one.
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
