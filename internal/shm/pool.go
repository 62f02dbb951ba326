//go:build linux

package shm

import (
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gosdp/gosdp/internal/lockorder"
)

// pool keeps segments that both ends of a connection have left for the next connection of the same two processes, because
// new memory is most of what a move costs. Each has three pages; a segment whose stream has left a small area is unmapped.
//
// The end that makes segments keeps the descriptors of its last ones, and sends one again: only to the process that has
// mapped the segment already, and only after that has left it. It clears the three pages before. The other end keeps the
// mapping, and recognises the file. Neither depends on what the other keeps. A segment whose descriptor is to be sent is not
// in the pool, which might close it.
var pool struct {
	mu     lockorder.Mutex[lockorder.SegmentPool]
	made   []*Segment // with a descriptor, in use or not; the oldest first
	opened []*Segment // not in use
}

// mostKept is how many segments of each kind the pool has.
const mostKept = 4

// Peer is the process at the other end, if segments may be kept for it. The zero value is one for which none may.
type Peer struct{ PID int }

// file identifies a file as long as it exists.
type file struct{ dev, ino uint64 }

// takeMade returns a segment that was made for the peer before, cleared; nil: there is none.
func takeMade(peer Peer) *Segment {
	pool.mu.Lock()
	defer pool.mu.Unlock()
	for i, s := range pool.made {
		if s.idle && s.peer == peer && s.left.Load() != 0 {
			pool.made = slices.Delete(pool.made, i, i+1)
			s.idle = false
			clear(s.mem[:controlLen])
			clear(s.areas(0)[0])
			clear(s.areas(1)[0])
			return s
		}
	}
	return nil
}

// takeOpened returns the segment of a file that the peer has sent before; nil: it is not kept.
func takeOpened(peer Peer, id file) *Segment {
	pool.mu.Lock()
	defer pool.mu.Unlock()
	i := slices.IndexFunc(pool.opened, func(s *Segment) bool { return s.peer == peer && s.id == id })
	if i < 0 {
		return nil
	}
	s := pool.opened[i]
	pool.opened = slices.Delete(pool.opened, i, i+1)
	return s
}

// keepFile keeps the descriptor of a segment that is in use, rather than that of the oldest.
func (s *Segment) keepFile() {
	pool.mu.Lock()
	pool.made = append(pool.made, s)
	var old *Segment
	if len(pool.made) > mostKept {
		old = pool.made[0]
		pool.made = slices.Delete(pool.made, 0, 1)
		unix.Close(old.fd)
		if old.fd = -1; !old.idle {
			old = nil // its connection unmaps it
		}
	}
	pool.mu.Unlock()
	if old != nil {
		old.unmap()
	}
}

// keep takes a segment that this end has left into the pool, if it is worth that.
func (s *Segment) keep() bool {
	if s.peer == (Peer{}) || s.ways[0].next[0].Load() != 0 || s.ways[1].next[0].Load() != 0 {
		return false
	}
	if s.maker == 0 {
		return s.keepMade()
	}
	pool.mu.Lock()
	pool.opened = append(pool.opened, s)
	s.left.Store(1) // after this the maker may clear it
	var old *Segment
	if len(pool.opened) > mostKept {
		old = pool.opened[0]
		pool.opened = slices.Delete(pool.opened, 0, 1)
	}
	pool.mu.Unlock()
	if old != nil {
		old.unmap()
	}
	return true
}

// keepMade is keep at the end that made the segment. Another connection may have the segment as soon as the lock is free.
func (s *Segment) keepMade() bool {
	pool.mu.Lock()
	defer pool.mu.Unlock()
	s.idle = s.fd >= 0
	return s.idle
}

// Forget unmaps what the pool has, and closes its descriptors. It returns how many these were.
func Forget() (closed int) {
	pool.mu.Lock()
	old := pool.opened
	closed = len(pool.made)
	for _, s := range pool.made {
		unix.Close(s.fd)
		if s.fd = -1; s.idle {
			old = append(old, s)
		}
	}
	pool.made, pool.opened = nil, nil
	pool.mu.Unlock()
	for _, s := range old {
		s.unmap()
	}
	return closed
}

// Unmap ends the use of the memory, which no other connection gets.
func (s *Segment) Unmap() {
	pool.mu.Lock()
	if i := slices.Index(pool.made, s); i >= 0 {
		pool.made = slices.Delete(pool.made, i, i+1)
	}
	if s.fd >= 0 {
		unix.Close(s.fd)
		s.fd = -1
	}
	pool.mu.Unlock()
	s.unmap()
}

func (s *Segment) unmap() {
	unix.MunmapPtr(unsafe.Pointer(&s.mem[0]), segmentLen)
	s.mem, s.control = nil, nil
}
