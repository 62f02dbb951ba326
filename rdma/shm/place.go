//go:build linux

package shm

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gosdp/gosdp/internal/handover"
	"github.com/gosdp/gosdp/rdma"
)

// place is an abstract Unix socket, which lives as long as its descriptor: there
// is nothing on the file system, and nothing to be left behind. Everybody in the
// network namespace can connect to it, so it asks who that is, and for a proof that it
// has the token.
type place struct {
	socket  string
	cfg     rdma.StepConfig
	ln      *os.File
	rc      syscall.RawConn // of ln
	workers sync.WaitGroup
	joining chan struct{} // holds one for each peer that is being heard
	links   pool

	mu      sync.Mutex
	invited map[name]*invitation
	heard   map[*net.UnixConn]struct{}
	closed  bool
}

const (
	// maxJoining bounds the peers that are heard at a time; more wait in the
	// kernel's backlog.
	maxJoining = 64
)

func listen(cfg rdma.StepConfig) (*place, error) {
	var random [16]byte
	rand.Read(random[:])
	socket := "sdp-" + hex.EncodeToString(random[:])
	ln, err := listenUnix("@" + socket)
	if err != nil {
		return nil, err
	}
	rc, err := ln.SyscallConn()
	if err != nil {
		ln.Close()
		return nil, err
	}
	p := &place{
		socket:  socket,
		cfg:     cfg,
		ln:      ln,
		rc:      rc,
		joining: make(chan struct{}, maxJoining),
		invited: make(map[name]*invitation),
		heard:   make(map[*net.UnixConn]struct{}),
	}
	p.workers.Go(p.run)
	return p, nil
}

// backlog is how many connections wait to be accepted: as many as a listener has
// handshakes. A peer waits for those that strangers have filled it with.
const backlog = 1024

// listenUnix returns a listening socket. It is no net.UnixListener, whose connections
// only Accept has.
func listenUnix(address string) (*os.File, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	f := os.NewFile(uintptr(fd), address)
	refuseRights(fd)
	if err = unix.Bind(fd, &unix.SockaddrUnix{Name: address}); err == nil {
		err = unix.Listen(fd, backlog)
	}
	if err != nil {
		f.Close()
		return nil, os.NewSyscallError("listen", err)
	}
	return f, nil
}

// lastLook is how long the byte that is last may still take when its time is over.
const lastLook = 100 * time.Millisecond

// invitation is for one peer.
type invitation struct {
	*handover.Slot
	place  *place
	token  [16]byte
	peer   rdma.Peer
	answer func([]byte) ([]byte, int, error)
}

// Invite lets one peer come.
func (p *place) Invite(peer rdma.Peer, answer func([]byte) ([]byte, int, error)) (rdma.Invitation, error) {
	i := &invitation{place: p, peer: peer, answer: answer, Slot: handover.New()}
	rand.Read(i.token[:])
	if heldUp() {
		return nil, errAside
	}
	if err := mapped.fits(); err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, net.ErrClosed
	}
	p.invited[nameOf(i.token)] = i
	return i, nil
}

// Address tells the peer where to come.
func (i *invitation) Address() rdma.Address {
	return rdma.Address{Token: i.token, Socket: i.place.socket}
}

// Withdraw ends the invitation.
func (i *invitation) Withdraw() {
	i.place.forget(nameOf(i.token))
	i.Slot.Withdraw()
}

// forget takes an invitation out: it is good for one peer.
func (p *place) forget(n name) *invitation {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := p.invited[n]
	delete(p.invited, n)
	return i
}

// run is the accepting goroutine.
func (p *place) run() {
	for {
		for heldUp() && !p.over() {
			time.Sleep(time.Millisecond)
		}
		p.joining <- struct{}{}
		conn, pid, uid, err := p.accept()
		if conn == nil {
			<-p.joining
			if p.over() {
				return
			}
			if err != nil {
				time.Sleep(time.Millisecond) // no descriptor is free, say
			}
			continue
		}
		if !p.hear(conn) {
			<-p.joining
			closeAside(conn)
			return
		}
		p.workers.Go(func() {
			up := p.join(conn, pid, uid)
			p.unhear(conn)
			<-p.joining
			if !up {
				closeAside(conn)
			}
		})
	}
}

// accept returns the next connection of a user that may be the peer, the process at its
// other end, and the user. It closes those of strangers without a word. After many of
// them it returns nil.
//
// Another user may connect without end. So a stranger costs few system calls, and no
// registration with the netpoller.
func (p *place) accept() (conn *net.UnixConn, pid, uid int, err error) {
	peer := -1
	var failed error
	err = p.rc.Read(func(fd uintptr) bool {
		for range manyStrangers {
			n, _, err := unix.Accept4(int(fd), unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
			switch {
			case err == unix.EAGAIN:
				return false
			case err == unix.EINTR || err == unix.ECONNABORTED:
				continue
			case err != nil:
				failed = os.NewSyscallError("accept4", err)
				return true
			}
			if pid, uid, err = credentialsOf(n, p.cfg.UIDs); err == nil && inline(n) == nil {
				peer = n
				return true
			}
			closeAside(files{n})
			if heldUp() {
				return true
			}
		}
		return true
	})
	if err == nil {
		err = failed
	}
	if peer < 0 || err != nil {
		return nil, 0, 0, err
	}
	f := os.NewFile(uintptr(peer), "peer")
	c, err := net.FileConn(f)
	if err != nil {
		closeAside(f)
		return nil, 0, 0, err
	}
	f.Close() // c has a copy, so this one does not block
	return c.(*net.UnixConn), pid, uid, nil
}

// manyStrangers are turned away between two looks at whether the place is closed.
const manyStrangers = 64

// hear notes that conn is being heard, and for how long; false when the place is closed.
func (p *place) hear(conn *net.UnixConn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		conn.SetDeadline(time.Now().Add(p.cfg.Timeout))
		p.heard[conn] = struct{}{}
	}
	return !p.closed
}

// over reports that the place is closed.
func (p *place) over() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.closed
}

func (p *place) unhear(conn *net.UnixConn) {
	p.mu.Lock()
	delete(p.heard, conn)
	p.mu.Unlock()
}

// join hears one peer, and reports whether it has come to a channel, which owns
// conn. A place of joining is free before conn is closed, which may take long.
func (p *place) join(conn *net.UnixConn, pid, uid int) bool {
	o, err := readOpening(conn)
	if err != nil {
		return false
	}
	i := p.forget(o.name)
	if i == nil {
		turnAway(conn, errors.New("the token is not good, or not any more"))
		return false
	}
	if i.peer.PID != 0 && pid != i.peer.PID {
		err = errors.New("shm: it is another process than the one that was invited")
		turnAway(conn, err)
		i.Deliver(nil, err)
		return false
	}
	var q *QueuePair
	r, err := p.challenge(conn, i.token, &o, p.wantsReach(pid, uid))
	if err == nil {
		q, err = p.admit(conn, i.token, &r, pid, uid, i.answer)
	}
	if err != nil {
		refuse(conn, err)
		i.Deliver(nil, err)
		return false
	}
	p.mu.Lock()
	delete(p.heard, conn) // Close leaves the channel alone
	p.mu.Unlock()
	conn.SetDeadline(time.Time{})
	i.Deliver(q, nil)
	return true
}

// Close ends the place and every invitation to it.
func (p *place) Close() error {
	p.mu.Lock()
	p.closed = true
	left := p.invited
	p.invited = nil
	for conn := range p.heard {
		conn.SetDeadline(past)
	}
	p.mu.Unlock()
	for _, i := range left {
		i.Deliver(nil, net.ErrClosed)
	}
	p.ln.SetDeadline(past)
	p.links.close()
	p.workers.Wait()
	return closeAside(p.ln) // with what nobody has accepted
}
