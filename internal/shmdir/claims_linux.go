package shmdir

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gosdp/gosdp/internal/spin"
)

// Claims are those of the sockets of one dial, which may try several addresses. Its methods are
// safe for concurrent use.
type Claims struct {
	dir  *Dir
	uids []int

	mu   sync.Mutex
	over bool // Close was called
	all  []dialled
	why  error // why a listener that is announced was passed over; nil: none was
}

// dialled is a claim at the dialler's end, on a socket that serves one claim at a time.
type dialled struct {
	dir    *Dir
	fd     int
	at     listening
	uid    int        // of the listener's process
	from   netip.Addr // where the kernel connects from
	port   uint16     // ours
	key    key
	opened bool      // the answer came, and the opening was sent
	worked bool      // and then the connection used SDP
	since  time.Time // when the claim was made, or the socket was put aside for the next one
}

// listening is a listener: its address, and the inode of its socket, which another process's
// socket does not have.
type listening struct {
	netip.AddrPort
	inode uint64
}

// NewClaims begins the claims of a dial. Listeners of our user and of uids are told.
func (d *Dir) NewClaims(uids []int) *Claims { return &Claims{dir: d, uids: uids} }

// Add claims the connection that the socket c, of TCP and not connected yet, is about to have to the
// address, if a listener is announced there. It binds the socket then. Close ends the claim.
func (s *Claims) Add(c syscall.RawConn, address string) {
	at, err := netip.ParseAddrPort(address)
	if err != nil || at.Addr().Zone() != "" || !announceable(at.Addr().Unmap()) {
		return
	}
	d, ok := kept.take(s.dir, bare(at), s.uids)
	if ok && d.claim(c) != nil { // the listener has closed the socket, say
		discard(d.fd)
		ok = false
	}
	if !ok {
		d, ok, err = s.dir.begin(c, bare(at), s.uids)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case ok && s.over: // the dial has had a connection to another address
		discard(d.fd)
	case ok:
		s.all = append(s.all, d)
	case err != nil:
		s.why = fmt.Errorf("shm directory %s: %w", s.dir.path, err)
	}
}

// begin claims a connection on a new socket; false: no listener is announced there.
func (d *Dir) begin(c syscall.RawConn, at netip.AddrPort, uids []int) (n dialled, ok bool, err error) {
	if !d.has(addressFile(at)) {
		return dialled{}, false, nil
	}
	from, err := source(at)
	if err == nil && from == at.Addr() { // its listener does not look for claims of this namespace
		err = errors.New("address belongs to this network namespace")
	}
	if err != nil {
		return dialled{}, false, err
	}
	n, err = d.visit(at, uids)
	if err != nil || n.fd < 0 {
		return dialled{}, false, err
	}
	n.from = from
	if err = n.claim(c); err != nil {
		discard(n.fd)
		return dialled{}, false, err
	}
	return n, true, nil
}

// has reports that there is such a file.
func (d *Dir) has(file string) bool {
	return unix.Faccessat(d.fd, file, unix.F_OK, unix.AT_SYMLINK_NOFOLLOW) != unix.ENOENT
}

// visit connects to the socket of the listener that is announced at the address; fd is -1 if none
// is.
func (d *Dir) visit(at netip.AddrPort, uids []int) (dialled, error) {
	none := dialled{fd: -1}
	path, inode, err := d.find(addressFile(at))
	if errors.Is(err, unix.ENOENT) {
		return none, nil
	}
	if err != nil {
		return none, fmt.Errorf("announcement of %v: %w", at, err)
	}
	defer unix.Close(path)
	if heldUp() {
		return none, errBlocked
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return none, os.NewSyscallError("socket", err)
	}
	refuseRights(fd)
	uid := 0
	switch err = unix.Connect(fd, &unix.SockaddrUnix{Name: itself(path)}); err {
	case nil:
		var cred *unix.Ucred
		if cred, err = unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			uid = int(cred.Uid)
			err = MayMeet(uid, os.Geteuid(), uids)
		}
	case unix.ECONNREFUSED: // its process has died
		unix.Close(fd)
		d.clean()
		return none, nil
	case unix.EAGAIN:
		err = errBusy
	}
	if err != nil {
		discard(fd)
		return none, fmt.Errorf("announcement of %v: %w", at, err)
	}
	return dialled{dir: d, fd: fd, at: listening{at, inode}, uid: uid}, nil
}

// claim binds the socket c, and tells the listener where it will connect from.
func (d *dialled) claim(c syscall.RawConn) error {
	var err error
	if d.port, err = Bind(c, d.at.AddrPort); err != nil {
		return err
	}
	d.key, d.opened, d.worked, d.since = newKey(), false, false, time.Now()
	m := claimed{from: d.from, commitment: d.key.commit(d.port)}
	m.hint = m.commitment.hint(d.port)
	return os.NewSyscallError("sendto", say(d.fd, m.append(nil)))
}

// source returns the address from which the kernel would connect there.
func source(to netip.AddrPort) (netip.Addr, error) {
	family, _, remote := sockaddrs(to, to.Addr().Is6())
	fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return netip.Addr{}, os.NewSyscallError("socket", err)
	}
	defer unix.Close(fd)
	if err := unix.Connect(fd, remote); err != nil { // which sends nothing
		return netip.Addr{}, os.NewSyscallError("connect", err)
	}
	local, err := nameOf(fd)
	return local.Addr(), err
}

// Bind returns the port of the socket c, of TCP and not connected yet, which it binds to one that is free
// unless it has one.
func Bind(c syscall.RawConn, to netip.AddrPort) (port uint16, err error) {
	failed := c.Control(func(fd uintptr) { port, err = bound(int(fd), to) })
	return port, errors.Join(failed, err)
}

// bound returns the port of the socket, which it binds to one that is free unless it has one.
func bound(fd int, to netip.AddrPort) (uint16, error) {
	_, any, _ := sockaddrs(to, to.Addr().Is6())
	failed := unix.Bind(fd, any) // if the socket is bound already, or is one of the other family
	local, err := nameOf(fd)
	if err == nil && failed != nil && local.Port() == 0 {
		_, any, _ = sockaddrs(to, !to.Addr().Is6())
		if err = os.NewSyscallError("bind", unix.Bind(fd, any)); err == nil {
			local, err = nameOf(fd)
		}
	}
	return local.Port(), err
}

// sockaddrs returns the family, the unspecified address with port 0, and the address, as a socket takes
// them that is one of IPv6, or not.
func sockaddrs(to netip.AddrPort, six bool) (family int, any, remote unix.Sockaddr) {
	if six {
		return unix.AF_INET6, &unix.SockaddrInet6{}, &unix.SockaddrInet6{Addr: to.Addr().As16(), Port: int(to.Port())}
	}
	return unix.AF_INET, &unix.SockaddrInet4{}, &unix.SockaddrInet4{Addr: to.Addr().Unmap().As4(), Port: int(to.Port())}
}

// nameOf returns the address of the socket. Package unix would ask for its protocol too.
func nameOf(fd int) (netip.AddrPort, error) {
	name, err := syscall.Getsockname(fd)
	if err != nil {
		return netip.AddrPort{}, os.NewSyscallError("getsockname", err)
	}
	switch a := name.(type) {
	case *syscall.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(a.Addr), uint16(a.Port)), nil
	case *syscall.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(a.Addr).Unmap(), uint16(a.Port)), nil
	}
	return netip.AddrPort{}, errors.New("not a TCP socket")
}

// Why returns why listeners that are announced are not asked; nil if there are none.
func (s *Claims) Why() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.why
}

// Made reports whether there is a claim on the connection between these addresses.
func (s *Claims) Made(local, remote netip.AddrPort) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.onLocked(bare(local), bare(remote)) != nil
}

// onLocked returns the claim on the connection between these addresses; nil: there is none.
func (s *Claims) onLocked(local, remote netip.AddrPort) *dialled {
	for i := range s.all {
		if d := &s.all[i]; d.at.AddrPort == remote && d.port == local.Port() {
			return d
		}
	}
	return nil
}

// Confirm waits for the listener to show that it has the other end of the connection between
// these addresses, for about a millisecond, or longer if it has done so before. If it returns nil, the
// listener expects a Request. Otherwise nothing may be sent to it that a program without SDP would
// not understand.
func (s *Claims) Confirm(local, remote netip.AddrPort) error {
	local, remote = bare(local), bare(remote)
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.onLocked(local, remote)
	switch {
	case d == nil && s.why != nil:
		return s.why
	case d == nil:
		return ErrNotAnnounced
	}
	begin := time.Now()
	if err := d.confirm(local.Addr()); err != nil {
		known.forget(d.at, VainTimes*time.Since(begin))
		return fmt.Errorf("shm directory %s: %w", s.dir.path, err)
	}
	return nil
}

// confirm waits for the answer that names our port, and opens the claim of a connection from
// that address.
func (d *dialled) confirm(from netip.Addr) error {
	if d.from != from {
		return fmt.Errorf("claim on %v: connection from %v, expected %v", d.at.AddrPort, from, d.from)
	}
	var b [answerLen + 1]byte
	n, err := 0, error(unix.EAGAIN)
	look := func() (over, worth bool) {
		n, err = receive(d.fd, b[:])
		return err != unix.EAGAIN, err == nil
	}
	looks := lookTimes
	if known.has(d.at) {
		looks = lookKnown
		answers.For(look)
	}
	for wrong := 0; looks > 0; looks-- {
		if err == unix.EAGAIN {
			look()
		}
		switch {
		case err == unix.EAGAIN && time.Since(d.since) > limits.ask: // an answer would come too late
			looks = 0
			continue
		case err == unix.EAGAIN:
			nap(d.fd)
			continue
		case err != nil:
			return fmt.Errorf("announcement of %v: %w", d.at, err)
		case n != answerLen:
			return fmt.Errorf("announcement of %v: malformed answer", d.at)
		}
		says := d.key[:]
		mine := binary.BigEndian.Uint16(b[:]) == d.port
		if !mine {
			says = []byte{0}
		}
		if err := say(d.fd, says); err != nil {
			return fmt.Errorf("announcement of %v: listener gave up: %w", d.at, err)
		}
		if mine {
			d.opened = true
			return nil
		}
		if wrong++; wrong > mostWrong {
			return fmt.Errorf("announcement of %v: listener guesses the connection's port", d.at)
		}
		err = unix.EAGAIN
	}
	return fmt.Errorf("announcement of %v: no confirmation that the listener accepted the connection", d.at)
}

// answers is the habit of polling for the answers of listeners that are known.
var answers spin.Habit

// nap waits for a message, for LookTime at most.
func nap(fd int) {
	wait := unix.NsecToTimespec(int64(LookTime))
	unix.Ppoll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, &wait, nil)
}

// Late returns an error if so much time has passed since a claim that was confirmed that the listener
// may not expect the Request any more. The dialler must ask just before it sends the Request.
func (s *Claims) Late() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.all {
		if d := &s.all[i]; d.opened && time.Since(d.since) > limits.ask {
			return fmt.Errorf("shm directory %s: claim on %v expired after %v", s.dir.path, d.at.AddrPort, limits.ask)
		}
	}
	return nil
}

// Worked notes that the listener has agreed on the connection that was confirmed: next time it is
// given longer, and the socket of the claim is used again.
func (s *Claims) Worked() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.all {
		if d := &s.all[i]; d.opened {
			known.add(d.at)
			d.worked = true
		}
	}
}

// Close ends the claims.
func (s *Claims) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range s.all {
		if d.worked {
			kept.put(d)
		} else {
			discard(d.fd)
		}
	}
	s.all, s.over = nil, true
}

// listeners remembers which have answered lately, and which have not.
type listeners struct {
	mu sync.Mutex
	of map[listening]habit
}

type habit struct {
	answers bool
	at      time.Time // when it has answered; if it has not, from when on that counts again
}

var known listeners

func (l *listeners) has(a listening) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	h := l.of[a]
	return h.answers && time.Since(h.at) < knownTime
}

func (l *listeners) add(a listening) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now := time.Now(); l.of[a].answers || !now.Before(l.of[a].at) {
		l.setLocked(a, habit{true, now})
	}
}

// forget has the listener count as one that has not answered, and for that time even if it does.
func (l *listeners) forget(a listening, d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.setLocked(a, habit{false, time.Now().Add(d)})
}

func (l *listeners) setLocked(a listening, h habit) {
	if _, there := l.of[a]; l.of == nil || !there && len(l.of) >= mostKnown {
		l.of = make(map[listening]habit)
	}
	l.of[a] = h
}
