package shmdir

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Announcer shows diallers that share the directory that a listener serves SDP, and takes their
// claims. It has no goroutine: claims lie in its socket until a connection is accepted. Its
// methods are safe for concurrent use, and wait for nothing.
type Announcer struct {
	dir  *Dir
	uids []int

	mu        sync.Mutex
	fd        int // the socket; -1: closed
	file      string
	inode     uint64
	names     map[netip.AddrPort]*name
	claims    []*claim
	held      int       // connections that Release was not called for
	vain      time.Time // until when no claim is answered: a connection has waited for one in vain
	suspended bool
}

// name is an address of a listener.
type name struct {
	there  bool // it is announced, unless that is suspended; false: it could not be the last time
	looked time.Time
}

const (
	// renewTime is how often an announcement is looked for, and made again if it is missing: it could
	// not be made, or another listener has taken the address, and may have ended.
	renewTime = time.Second
	// mostAnnounced bounds the addresses of a listener.
	mostAnnounced = 64
	// mostClaims are kept at a time, for claimTime at most; and mostAtOnce are taken in when a
	// connection is accepted.
	mostClaims = 128
	mostAtOnce = 32
	claimTime  = time.Second
	// openedTime is how long an opened claim is kept for its connection to see that.
	openedTime = 10 * time.Second
)

// Announce makes the socket of a listener. It is announced nowhere yet; see Add.
func (d *Dir) Announce(uids []int) (*Announcer, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	refuseRights(fd)
	a := &Announcer{dir: d, uids: uids, fd: fd, file: randomFile(listenerPrefix), names: make(map[netip.AddrPort]*name)}
	if err := d.bind(fd, a.file, mostClaims, len(uids) > 0); err != nil {
		discard(fd)
		return nil, err
	}
	path, inode, err := d.find(a.file)
	if err != nil {
		a.Close()
		return nil, err
	}
	unix.Close(path)
	a.inode = inode
	return a, nil
}

// AddListener announces the address that a listener has, and all of this network
// namespace if it has none of its own.
func (a *Announcer) AddListener(at netip.AddrPort) error {
	if !at.Addr().IsUnspecified() {
		return a.Add(at)
	}
	all, err := net.InterfaceAddrs()
	for _, one := range all {
		if p, err := netip.ParsePrefix(one.String()); err == nil && (at.Addr().Is6() || p.Addr().Is4()) {
			if failed := a.Add(netip.AddrPortFrom(p.Addr(), at.Port())); failed != nil {
				return failed
			}
		}
	}
	return err
}

// Add announces the address, in the place of an older announcement, unless that was done and
// the announcement is still there. Of several listeners the one that is given connections at the
// address has it: one of IPv4, for example, and not one of IPv6 with the same port. Add does
// nothing for an address that means another host elsewhere, as those of the loopback interface do.
func (a *Announcer) Add(at netip.AddrPort) error {
	at = bare(at)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.fd < 0 || a.suspended || !announceable(at.Addr()) {
		return nil
	}
	n := a.names[at]
	switch {
	case n == nil && len(a.names) == mostAnnounced:
		return fmt.Errorf("shm directory %s: too many addresses announced, limit is %d", a.dir.path, mostAnnounced)
	case n == nil:
		n = new(name)
		a.names[at] = n
	case time.Since(n.looked) < renewTime:
		return nil
	}
	if n.there && a.leadsHere(addressFile(at)) {
		n.looked = time.Now()
		return nil
	}
	return a.placeLocked(at, n)
}

// placeLocked announces the address n, in the place of an older announcement.
func (a *Announcer) placeLocked(at netip.AddrPort, n *name) error {
	n.there, n.looked = false, time.Now()
	aside := randomFile(asidePrefix)
	if err := unix.Linkat(a.dir.fd, a.file, a.dir.fd, aside, 0); err != nil {
		return a.dir.explain("linkat", err)
	}
	err := unix.Renameat(a.dir.fd, aside, a.dir.fd, addressFile(at))
	unix.Unlinkat(a.dir.fd, aside, 0) // it is there if it could not be renamed, or was the same
	if err != nil {
		return a.dir.explain("renameat", err)
	}
	n.there = true
	return nil
}

// Close ends the announcements.
func (a *Announcer) Close() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.fd < 0 {
		return nil
	}
	a.removeLocked()
	unix.Unlinkat(a.dir.fd, a.file, 0)
	for _, c := range a.claims {
		c.settle()
	}
	discard(a.fd) // with the connections that were not accepted
	a.fd = -1
	a.endLocked()
	return nil
}

// endLocked closes the claims of an Announcer that was closed, when no connection is held any more. One
// that was opened for a connection which is not held any more has nobody else to close it.
func (a *Announcer) endLocked() {
	if a.fd >= 0 || a.held > 0 {
		return
	}
	for _, c := range a.claims {
		if !c.taken {
			c.close()
		}
	}
	a.claims = nil
}

// removeLocked removes the announcements.
func (a *Announcer) removeLocked() {
	for at, n := range a.names {
		if file := addressFile(at); n.there && a.leadsHere(file) {
			unix.Unlinkat(a.dir.fd, file, 0)
		}
	}
}

// Suspend ends the announcements until Resume, and the claims on connections that were not
// accepted: their diallers need not wait for an answer.
func (a *Announcer) Suspend() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.fd < 0 || a.suspended {
		return
	}
	a.suspended = true
	a.removeLocked()
	for range mostClaims {
		if heldUp() {
			break
		}
		fd, _, err := unix.Accept4(a.fd, unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK)
		if err != nil {
			break
		}
		discard(fd)
	}
	a.claims = slices.DeleteFunc(a.claims, func(c *claim) bool {
		if len(c.ports) == 0 {
			c.settle()
		}
		return c.closed
	})
}

// Resume announces the addresses again. It does nothing if that was not suspended.
func (a *Announcer) Resume() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.fd < 0 || !a.suspended {
		return nil
	}
	a.suspended = false
	for at, n := range a.names {
		if !n.there {
			continue
		}
		if err := a.placeLocked(at, n); err != nil {
			return err
		}
	}
	return nil
}

// leadsHere reports that the file is a name of this socket.
func (a *Announcer) leadsHere(file string) bool {
	var st unix.Stat_t
	return unix.Fstatat(a.dir.fd, file, &st, unix.AT_SYMLINK_NOFOLLOW) == nil && st.Ino == a.inode
}
