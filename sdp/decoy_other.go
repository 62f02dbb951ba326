//go:build !linux

package sdp

import "os"

// withDecoy calls f with the descriptor of a pipe from which head can be read, and then
// nothing, or an end if ended is set.
func withDecoy(head []byte, ended bool, f func(fd uintptr) bool) (done bool, err error) {
	r, w, err := os.Pipe()
	if err != nil {
		return false, err
	}
	defer r.Close()
	defer w.Close()
	if _, err := w.Write(head); err != nil {
		return false, err
	}
	if ended {
		w.Close()
	}
	rc, err := r.SyscallConn()
	if err != nil {
		return false, err
	}
	err = rc.Control(func(fd uintptr) { done = f(fd) })
	return done, err
}
