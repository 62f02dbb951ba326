//go:build !linux

package sdp

import "os"

// quiet calls f with the end of a pipe that has nothing to read, and never will
// if ended.
func quiet(ended bool, f func(fd uintptr) bool) (done bool, err error) {
	r, w, err := os.Pipe()
	if err != nil {
		return false, err
	}
	defer r.Close()
	defer w.Close()
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
