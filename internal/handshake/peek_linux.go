package handshake

import "golang.org/x/sys/unix"

// hungUp reports whether the peer has closed its direction. Peeking does not show that.
func hungUp(fd int) bool {
	p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
	n, err := poll(p)
	return err == nil && n > 0
}

// unread reports whether bytes have arrived that are not read.
func unread(fd int) bool {
	n, err := unix.IoctlGetInt(fd, unix.SIOCINQ)
	return err != nil || n > 0
}
