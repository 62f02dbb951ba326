//go:build unix

package handshake

import (
	"golang.org/x/sys/unix"
)

// peek copies what has arrived to b, which has room for a key, and returns what it means. If nothing
// has arrived but an error, such as ECONNRESET, it does not peek, which would take the error from the
// program.
func peek(socket uintptr, b []byte) verdict {
	fd := int(socket)
	for {
		p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		ready, err := poll(p)
		switch {
		case err == nil && ready == 0:
			return undecided
		case err == nil && p[0].Revents&unix.POLLERR != 0:
			if !unread(fd) {
				return isPlain
			}
		}
		n, _, err := unix.Recvfrom(fd, b, unix.MSG_PEEK|unix.MSG_DONTWAIT)
		switch {
		case err == unix.EINTR:
			continue
		case err == unix.EAGAIN:
			return undecided
		case err != nil || n == 0:
			return isPlain
		}
		v := judge(b[:n])
		if v == undecided && hungUp(fd) {
			v = isPlain
		}
		return v
	}
}

// poll looks at the sockets without waiting. A signal, such as those by which the runtime preempts
// goroutines, makes poll(2) return EINTR even then.
func poll(fds []unix.PollFd) (n int, err error) {
	for {
		if n, err = unix.Poll(fds, 0); err != unix.EINTR {
			return n, err
		}
	}
}
