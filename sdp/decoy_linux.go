package sdp

import "golang.org/x/sys/unix"

// withDecoy calls f with the descriptor of a socket from which head can be read, and then
// nothing, or an end if ended is set.
func withDecoy(head []byte, ended bool, f func(fd uintptr) bool) (done bool, err error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return false, err
	}
	defer unix.Close(pair[0])
	defer unix.Close(pair[1])
	if len(head) > 0 {
		if _, err := unix.Write(pair[1], head); err != nil {
			return false, err
		}
	}
	if ended {
		unix.Shutdown(pair[1], unix.SHUT_WR)
	}
	return f(uintptr(pair[0])), nil
}
