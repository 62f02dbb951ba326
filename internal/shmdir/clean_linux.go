package shmdir

import (
	"encoding/hex"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// A sweep looks at mostListed files, connects to mostTried sockets of them, and begins
	// sweepTime after the last one.
	mostListed = 1024
	mostTried  = 256
	sweepTime  = time.Second
	// staleAge is how old a socket is, at least, that is looked at: the kernel makes the file
	// a moment before the socket can be found there.
	staleAge = time.Second
)

// sweep removes the sockets of processes that have died. It goes through the directory a part
// at a time, so that it reaches the end of a large one too.
type sweep struct {
	mu   sync.Mutex
	at   time.Time
	list *os.File // where the last part ended
	rest []string // of that part, which is still to be looked at
}

// clean begins a sweep in the background if none has begun lately: a dial waits for nothing.
func (d *Dir) clean() {
	if !d.sweep.mu.TryLock() {
		return
	}
	due := time.Since(d.sweep.at) > sweepTime
	if due {
		d.sweep.at = time.Now()
	}
	d.sweep.mu.Unlock()
	if due {
		go d.Clean()
	}
}

// Clean removes sockets of processes that have died, as far as it may, and as many as one
// sweep looks at.
func (d *Dir) Clean() {
	s := &d.sweep
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at = time.Now()
	if len(s.rest) == 0 {
		s.rest = d.listLocked()
	}
	for tried := 0; len(s.rest) > 0 && tried < mostTried; s.rest = s.rest[1:] {
		if name := s.rest[0]; ours(name) && d.old(name) {
			tried++
			if d.dead(name) {
				d.removeDead(name)
			}
		}
	}
}

// listLocked returns the names in the next part of the directory.
func (d *Dir) listLocked() []string {
	s := &d.sweep
	if s.list == nil {
		fd, err := unix.Openat(d.fd, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return nil
		}
		s.list = os.NewFile(uintptr(fd), d.path)
	}
	names, err := s.list.Readdirnames(mostListed)
	if err != nil || len(names) < mostListed {
		s.list.Close()
		s.list = nil
	}
	return names
}

// ours reports that a file's name is one of those that this package gives.
func ours(name string) bool {
	for _, prefix := range []string{clientPrefix, listenerPrefix, addressPrefix, asidePrefix} {
		if rest, ok := strings.CutPrefix(name, prefix); ok {
			b, err := hex.DecodeString(rest)
			return err == nil && (len(b) == randomLen || len(b) == 16)
		}
	}
	return false
}

// old reports that the file is a socket and old enough to be looked at.
func (d *Dir) old(name string) bool {
	var st unix.Stat_t
	if unix.Fstatat(d.fd, name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil || st.Mode&unix.S_IFMT != unix.S_IFSOCK {
		return false
	}
	return time.Since(time.Unix(st.Mtim.Unix())) > staleAge
}

// dead reports that no process listens on the socket.
func (d *Dir) dead(name string) bool {
	path, _, err := d.find(name)
	if err != nil {
		return false
	}
	defer unix.Close(path)
	return deaf(path)
}

// deaf reports that no process listens on the socket that the descriptor stands for.
func deaf(path int) bool {
	// A socket of another type refuses this one with EPROTOTYPE, and its process hears nothing.
	s, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return false
	}
	defer unix.Close(s)
	return unix.Connect(s, &unix.SockaddrUnix{Name: itself(path)}) == unix.ECONNREFUSED
}

// removeDead removes the file if its socket is dead. A live one may have taken its place
// meanwhile; so it is moved out of the way first, and back if that is so.
func (d *Dir) removeDead(name string) {
	aside := randomFile(asidePrefix)
	if unix.Renameat(d.fd, name, d.fd, aside) != nil {
		return
	}
	if !d.dead(aside) {
		unix.Linkat(d.fd, aside, d.fd, name, 0) // fails if there is a newer one already
	}
	unix.Unlinkat(d.fd, aside, 0)
}
