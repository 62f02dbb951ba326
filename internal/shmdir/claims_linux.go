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
)

// Claims are those of the sockets of one dial, which may try several addresses. Its methods are
// safe for concurrent use.
type Claims struct {
	dir  *Dir
	uids []int

	mu  sync.Mutex
	all []dialled
	why error // why a listener that is announced was passed over; nil: none was
}

// dialled is a claim at the dialler's end.
type dialled struct {
	fd   int
	at   listening
	port uint16 // ours
	key  key
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
	fd, inode, err := s.dir.visit(bare(at), s.uids)
	if err == nil && fd >= 0 {
		d := dialled{fd: fd, at: listening{bare(at), inode}, key: newKey()}
		if err = d.claim(c, at); err == nil {
			s.mu.Lock()
			s.all = append(s.all, d)
			s.mu.Unlock()
			return
		}
		discard(fd)
	}
	if err != nil {
		s.mu.Lock()
		s.why = fmt.Errorf("shm directory %s: %w", s.dir.path, err)
		s.mu.Unlock()
	}
}

// visit connects to the socket of the listener that is announced at the address; -1: none is.
func (d *Dir) visit(at netip.AddrPort, uids []int) (fd int, inode uint64, err error) {
	path, inode, err := d.find(addressFile(at))
	if errors.Is(err, unix.ENOENT) {
		return -1, 0, nil
	}
	if err != nil {
		return -1, 0, fmt.Errorf("the announcement of %v: %w", at, err)
	}
	defer unix.Close(path)
	fd, err = unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return -1, 0, os.NewSyscallError("socket", err)
	}
	refuseRights(fd)
	switch err = unix.Connect(fd, &unix.SockaddrUnix{Name: itself(path)}); err {
	case nil:
		var cred *unix.Ucred
		if cred, err = unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			err = MayMeet(int(cred.Uid), os.Geteuid(), uids)
		}
	case unix.ECONNREFUSED: // its process has died
		unix.Close(fd)
		d.clean()
		return -1, 0, nil
	case unix.EAGAIN:
		err = errBusy
	}
	if err != nil {
		discard(fd)
		return -1, 0, fmt.Errorf("the announcement of %v: %w", at, err)
	}
	return fd, inode, nil
}

// claim binds the socket, and tells the listener where it will connect from.
func (d *dialled) claim(c syscall.RawConn, at netip.AddrPort) error {
	from, err := source(at)
	if err != nil {
		return err
	}
	if from == d.at.Addr() {
		return errors.New("the address is one of our own network namespace")
	}
	failed := c.Control(func(fd uintptr) { d.port, err = bound(int(fd), at) })
	if err = errors.Join(failed, err); err != nil {
		return err
	}
	m := claimed{from: from, commitment: d.key.commit(d.port)}
	m.hint = m.commitment.hint(d.port)
	_, err = unix.SendmsgN(d.fd, m.append(nil), nil, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
	return os.NewSyscallError("sendmsg", err)
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

// bound returns the port of the socket, which it binds to one that is free unless it has one.
func bound(fd int, to netip.AddrPort) (uint16, error) {
	local, err := nameOf(fd)
	if err != nil {
		return 0, err
	}
	if local.Port() == 0 {
		domain, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN)
		if err != nil {
			return 0, os.NewSyscallError("SO_DOMAIN", err)
		}
		_, any, _ := sockaddrs(to, domain == unix.AF_INET6)
		if err := unix.Bind(fd, any); err != nil {
			return 0, os.NewSyscallError("bind", err)
		}
		if local, err = nameOf(fd); err != nil {
			return 0, err
		}
	}
	return local.Port(), nil
}

// sockaddrs returns the family, the unspecified address with port 0, and the address, as a socket takes
// them that is one of IPv6, or not.
func sockaddrs(to netip.AddrPort, six bool) (family int, any, remote unix.Sockaddr) {
	if six {
		return unix.AF_INET6, &unix.SockaddrInet6{}, &unix.SockaddrInet6{Addr: to.Addr().As16(), Port: int(to.Port())}
	}
	return unix.AF_INET, &unix.SockaddrInet4{}, &unix.SockaddrInet4{Addr: to.Addr().Unmap().As4(), Port: int(to.Port())}
}

func nameOf(fd int) (netip.AddrPort, error) {
	name, err := unix.Getsockname(fd)
	if err != nil {
		return netip.AddrPort{}, os.NewSyscallError("getsockname", err)
	}
	switch a := name.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(a.Addr), uint16(a.Port)), nil
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(a.Addr).Unmap(), uint16(a.Port)), nil
	}
	return netip.AddrPort{}, errors.New("the socket is not one of TCP")
}

// Why returns why listeners that are announced are not asked; nil if there are none.
func (s *Claims) Why() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.why
}

// Confirm waits for the listener to show that it has the other end of the connection between
// these addresses, for about a millisecond, or longer if it has done so before. If it returns nil, the
// listener expects a Request. Otherwise nothing may be sent to it that a program without SDP would
// not understand.
func (s *Claims) Confirm(local, remote netip.AddrPort) error {
	local, remote = bare(local), bare(remote)
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.all {
		if d := &s.all[i]; d.at.AddrPort == remote && d.port == local.Port() {
			if err := d.confirm(); err != nil {
				known.forget(d.at)
				return fmt.Errorf("shm directory %s: %w", s.dir.path, err)
			}
			return nil
		}
	}
	if s.why != nil {
		return s.why
	}
	return ErrNotAnnounced
}

func (d *dialled) confirm() error {
	looks := lookTimes
	if known.has(d.at) {
		looks = lookKnown
	}
	for wrong := 0; looks > 0; looks-- {
		var b [answerLen + 1]byte
		n, err := receive(d.fd, b[:])
		switch {
		case err == unix.EAGAIN:
			nap(d.fd)
			continue
		case err != nil:
			return fmt.Errorf("the announcement of %v: %w", d.at, err)
		case n != answerLen:
			return fmt.Errorf("the announcement of %v: what came is no answer", d.at)
		}
		says := d.key[:]
		mine := binary.BigEndian.Uint16(b[:]) == d.port
		if !mine {
			says = []byte{0}
		}
		if _, err := unix.SendmsgN(d.fd, says, nil, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL); err != nil {
			return fmt.Errorf("the announcement of %v: the listener has given up: %w", d.at, err)
		}
		if mine {
			return nil
		}
		if wrong++; wrong > mostWrong {
			return fmt.Errorf("the announcement of %v: it guesses which connection is ours", d.at)
		}
	}
	return fmt.Errorf("the announcement of %v: nothing shows that the listener has accepted the connection", d.at)
}

// nap waits for a message, for lookTime at most.
func nap(fd int) {
	wait := unix.NsecToTimespec(int64(lookTime))
	unix.Ppoll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, &wait, nil)
}

// Worked notes that the listener has agreed on the connection: next time it is given longer.
func (s *Claims) Worked(remote netip.AddrPort) {
	remote = bare(remote)
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.all {
		if s.all[i].at.AddrPort == remote {
			known.add(s.all[i].at)
		}
	}
}

// Close ends the claims.
func (s *Claims) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range s.all {
		discard(d.fd)
	}
	s.all = nil
}

// listeners remembers which have answered lately.
type listeners struct {
	mu sync.Mutex
	at map[listening]time.Time
}

var known listeners

func (l *listeners) has(a listening) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	at, ok := l.at[a]
	return ok && time.Since(at) < knownTime
}

func (l *listeners) add(a listening) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.at == nil || len(l.at) >= mostKnown {
		l.at = make(map[listening]time.Time)
	}
	l.at[a] = time.Now()
}

func (l *listeners) forget(a listening) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.at, a)
}
