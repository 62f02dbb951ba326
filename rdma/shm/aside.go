//go:build linux

package shm

import (
	"errors"
	"io"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// mostAside is how many closes may be blocked before this process opens no further channel. The
// number can exceed it by the peers that are being checked at that moment.
const mostAside = 64

// aside counts the goroutines of closeInBackground. blocked counts those that have taken longer
// than asideAfter; a close that does not block is done by then.
var aside, blocked atomic.Int32

const asideAfter = 5 * time.Millisecond

// errAside is the reason for opening no channel while heldUp.
var errAside = errors.New("shm: too many received file descriptors whose close blocks")

// closeAside closes c, which may hold descriptors from another process. If the kernel accepts those,
// the close may block for as long as that process wants, so it is done in a separate goroutine.
func closeAside(c io.Closer) error {
	if !takesRights.Load() {
		return c.Close()
	}
	closeInBackground(c)
	return nil
}

// closeInBackground closes c in a separate goroutine, because that may block with any kernel.
func closeInBackground(c io.Closer) {
	aside.Add(1)
	late := time.AfterFunc(asideAfter, func() { blocked.Add(1) })
	go func() {
		defer aside.Add(-1)
		c.Close()
		if !late.Stop() {
			blocked.Add(-1)
		}
	}()
}

// heldUp reports whether too many closes are blocked.
func heldUp() bool { return blocked.Load() >= mostAside }

// files are descriptors that were received over a socket.
type files []int

// Close closes them one after the other, so that together they block one thread.
func (f files) Close() error {
	for _, fd := range f {
		unix.Close(fd)
	}
	return nil
}
