package sdp

import "golang.org/x/sys/unix"

// quiet calls f with a socket that has nothing to read, and never will if ended.
func quiet(ended bool, f func(fd uintptr) bool) (done bool, err error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return false, err
	}
	defer unix.Close(pair[0])
	defer unix.Close(pair[1])
	if ended {
		unix.Shutdown(pair[1], unix.SHUT_WR)
	}
	return f(uintptr(pair[0])), nil
}
