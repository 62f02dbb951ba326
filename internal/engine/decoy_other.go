//go:build !linux

package engine

import (
	"io"
	"os"
)

// decoyBytes is how many unread bytes the decoy shows at most: what a pipe holds on every system.
// The Write of more would wait for a reader.
const decoyBytes = 4 << 10

// decoy makes a pipe from which a callback of RawConn.Read reads unread bytes.
type decoy struct{}

// show calls f with the descriptor of a pipe from which head can be read, and then nothing, or an
// end if ended is set. It returns how many bytes f has read.
func (d *decoy) show(head []byte, ended bool, f func(fd uintptr) bool) (done bool, taken int, err error) {
	r, w, err := os.Pipe()
	if err != nil {
		return false, 0, err
	}
	defer r.Close()
	defer w.Close()
	if _, err := w.Write(head); err != nil {
		return false, 0, err
	}
	if ended {
		w.Close()
	}
	rc, err := r.SyscallConn()
	if err != nil {
		return false, 0, err
	}
	if err := rc.Control(func(fd uintptr) { done = f(fd) }); err != nil || len(head) == 0 {
		return done, 0, err
	}
	w.Close()
	left, err := io.Copy(io.Discard, r)
	return done, len(head) - int(left), err
}

func (d *decoy) close() {}
