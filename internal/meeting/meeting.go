//go:build linux

package meeting

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gosdp/gosdp/internal/shm"
)

// Ends describes the connection for which its ends meet.
type Ends struct {
	Dialler, Acceptor netip.AddrPort // as package net has them; IPv4 addresses may be mapped
	TCP               syscall.RawConn
	Allow             func(uid uint32) bool // besides the own user; nil: nobody
	Dir               string                // where ends in different network namespaces meet; "": nowhere
}

// Apart reports whether the ends may be in different network namespaces, and meet in the directory.
func (e *Ends) Apart() bool {
	return e.Dir != "" && !OneNamespace(e.Dialler.Addr(), e.Acceptor.Addr())
}

// name is the abstract name at which the ends meet, or that of a file in the directory. The latter has the dialler's
// address alone: destination NAT changes the other one.
func (e *Ends) name() string {
	d := bare(e.Dialler)
	if e.Apart() {
		return prefix + netip.AddrPortFrom(d.Addr().WithZone(""), d.Port()).String()
	}
	return fmt.Sprintf("@gosdp/%d/%s/%s", version, d, bare(e.Acceptor))
}

func bare(a netip.AddrPort) netip.AddrPort { return netip.AddrPortFrom(a.Addr().Unmap(), a.Port()) }

// Meeting is one end's part of a meeting that has begun. Its methods must not be called concurrently.
type Meeting struct {
	ends     Ends
	name     string
	fd       int
	accepted bool   // at the dialler: fd is connected
	file     string // at the dialler: the path of its socket in the directory, until that is removed
	dialler  bool
	other    bool // the peer runs as another user
	refused  error
}

// backlog is how many processes may connect to a dialler at a time: any process may.
const backlog = 8

// Invite lets the acceptor find the dialler. The error wraps EADDRINUSE if another process has the name, and is
// ErrEarly if the ends may be in different namespaces and too little tells them apart from others.
func Invite(e Ends, f Facts) (*Meeting, error) {
	if f.early(&e) {
		return nil, ErrEarly
	}
	m := &Meeting{ends: e, name: e.name(), dialler: true}
	var err error
	if m.fd, err = unixSocket(); err != nil {
		return nil, err
	}
	if e.Apart() {
		if err = bindIn(e.Dir, m.name, m.fd, e.Allow != nil); err == nil {
			m.file = filepath.Join(e.Dir, m.name)
		}
	} else {
		err = unix.Bind(m.fd, &unix.SockaddrUnix{Name: m.name})
	}
	if err == unix.EADDRINUSE {
		err = fmt.Errorf("another process has the socket %s: %w", m.name, err)
	} else if errno, ok := err.(unix.Errno); ok {
		err = os.NewSyscallError("bind", errno)
	}
	if err == nil {
		err = os.NewSyscallError("listen", unix.Listen(m.fd, backlog))
	}
	if err != nil {
		m.Close()
		return nil, err
	}
	if e.Apart() {
		sweep(e.Dir)
	}
	return m, nil
}

// early reports whether a proof would cover too little.
func (f *Facts) early(e *Ends) bool {
	return e.Apart() && (len(f.FirstIn)+len(f.FirstOut) < leastApart || f.Moments.few())
}

// unixSocket returns a socket that takes no descriptors, where the kernel can refuse them (Linux 6.16): closing one may
// block for as long as its sender likes.
func unixSocket() (int, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PASSRIGHTS, 0)
	}
	return fd, os.NewSyscallError("socket", err)
}

// seeker is an unconnected socket, kept because most attempts are refused.
var seeker struct {
	sync.Mutex
	fd   int
	have bool
}

// Seek looks for the dialler. It returns nil and no error if that has not invited, and ErrEarly as Invite does.
func Seek(e Ends, f Facts) (*Meeting, error) {
	if f.early(&e) {
		return nil, ErrEarly
	}
	name := e.name()
	seeker.Lock()
	fd, have := seeker.fd, seeker.have
	seeker.have = false
	seeker.Unlock()
	if !have {
		var err error
		if fd, err = unixSocket(); err != nil {
			return nil, err
		}
	}
	if err := e.connect(fd, name); err != nil {
		seeker.Lock()
		if !seeker.have {
			seeker.fd, seeker.have = fd, true
			fd = -1
		}
		seeker.Unlock()
		if fd >= 0 {
			unix.Close(fd)
		}
		if err == unix.ECONNREFUSED || err == unix.EAGAIN { // nobody; or somebody else is there already
			return nil, nil
		}
		if errno, ok := err.(unix.Errno); ok {
			err = os.NewSyscallError("connect", errno)
		}
		return nil, err
	}
	m := &Meeting{ends: e, name: name, fd: fd}
	peer, err := m.check()
	if err == nil {
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PASSRIGHTS, 1) // for the memory
		err = m.say(peer, f)
	}
	if err != nil {
		m.Close()
		return nil, err
	}
	return m, nil
}

func (e *Ends) connect(fd int, name string) error {
	if e.Apart() {
		return connectIn(e.Dir, name, fd)
	}
	return unix.Connect(fd, &unix.SockaddrUnix{Name: name})
}

// Refused returns why a process that has come to a dialler was turned away; nil: none was.
func (m *Meeting) Refused() error { return m.refused }

// Close ends a meeting that has not succeeded.
func (m *Meeting) Close() {
	m.unlink()
	if m.fd >= 0 {
		unix.Close(m.fd)
		m.fd = -1
	}
}

// unlink lets nobody else find the dialler.
func (m *Meeting) unlink() {
	if m.file != "" {
		unix.Unlink(m.file)
		m.file = ""
	}
}

// Step goes on with the meeting, if the peer has. When both ends have met it returns the segment and the
// socket for the doorbell, which belong to the caller. If it returns neither an error nor a segment, the peer has
// not got that far. After an error the caller calls Close.
func (m *Meeting) Step(f Facts) (*shm.Segment, int, error) {
	if !readable(m.fd) { // accept4 makes a file before it looks, and check takes longer
		return nil, -1, nil
	}
	if m.dialler && !m.accepted {
		fd, _, err := unix.Accept4(m.fd, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
		if err != nil {
			return nil, -1, os.NewSyscallError("accept", err)
		}
		listens := m.fd
		m.fd = fd
		if _, err := m.check(); err != nil { // anyone can connect
			unix.Close(fd)
			m.fd, m.refused = listens, err
			return nil, -1, nil
		}
		m.accepted = true
		m.unlink()
		unix.Close(listens)
	}
	peer, err := m.check() // before descriptors are accepted
	if err != nil {
		return nil, -1, err
	}
	b, file, err := m.hear()
	if err == unix.EAGAIN {
		return nil, -1, nil
	}
	if err != nil {
		return nil, -1, err
	}
	if file >= 0 {
		defer unix.Close(file)
	}
	v, err := m.view(peer, f)
	if err == nil {
		err = v.check(b)
	}
	if err != nil {
		return nil, -1, err
	}
	var seg *shm.Segment
	if m.dialler {
		if file >= 0 {
			return nil, -1, errShort
		}
		if seg, err = shm.New(m.keeps(peer)); err != nil {
			return nil, -1, err
		}
		err = m.say(peer, f, seg.File())
		seg.Sent()
	} else if file < 0 {
		err = errShort
	} else {
		seg, err = shm.Open(m.keeps(peer), file)
	}
	if err != nil {
		if seg != nil {
			seg.Unmap()
		}
		return nil, -1, err
	}
	fd := m.fd
	m.fd = -1
	return seg, fd, nil
}

// keeps returns the peer, if it could read this process's memory anyhow: another user's process, or one in another
// container, might have the number of one that has ended.
func (m *Meeting) keeps(peer int) shm.Peer {
	if m.other || m.ends.Apart() {
		return shm.Peer{}
	}
	return shm.Peer{PID: peer}
}

var errSelf = errors.New("peer is this process")

// check looks at the peer's process and at the TCP socket. It returns the process's number.
func (m *Meeting) check() (pid int, err error) {
	u, err := unix.GetsockoptUcred(m.fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return 0, os.NewSyscallError("getsockopt", err)
	}
	switch {
	case u.Uid == unmapped || int(u.Uid) != unix.Geteuid() && (m.ends.Allow == nil || !m.ends.Allow(u.Uid)):
		return 0, fmt.Errorf("peer runs as user %d, this process as user %d", u.Uid, unix.Geteuid())
	case int(u.Pid) == unix.Getpid() && !TestSelf:
		return 0, errSelf
	}
	m.other = int(u.Uid) != unix.Geteuid()
	failed := m.ends.TCP.Control(func(fd uintptr) { err = suitable(int(fd), m.fd, m.ends.Apart()) })
	return int(u.Pid), errors.Join(failed, err)
}

// suitable returns why a socket does not carry plain TCP, within the network namespace of the Unix socket unless the ends
// may be apart.
func suitable(fd, unixFD int, apart bool) error {
	for _, o := range []struct {
		level, option, want int
		why                 string
	}{
		{unix.SOL_SOCKET, unix.SO_PROTOCOL, unix.IPPROTO_TCP, "connection is not plain TCP"},
		{unix.SOL_SOCKET, unix.SO_BINDTOIFINDEX, 0, "socket is bound to a network device"},
	} {
		if v, err := unix.GetsockoptInt(fd, o.level, o.option); err != nil || v != o.want {
			return errors.New(o.why)
		}
	}
	if apart {
		return nil
	}
	mine, err := unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
	if err != nil {
		return os.NewSyscallError("getsockopt", err)
	}
	if theirs, err := unix.GetsockoptUint64(unixFD, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE); err != nil || theirs != mine {
		return errors.New("connection belongs to another network namespace")
	}
	return nil
}

// view returns how this end sees the connection now.
func (m *Meeting) view(peer int, f Facts) (view, error) {
	v := view{name: m.name, apart: m.ends.Apart(), self: unix.Getpid(), peer: peer, numbers: pidNamespace(), Facts: f}
	err := errors.New("closed")
	failed := m.ends.TCP.Control(func(fd uintptr) { v.counts, err = count(int(fd)) })
	return v, errors.Join(failed, err)
}

// pidNamespace identifies the namespace of this process's numbers: those of two containers differ, also within a pod.
var pidNamespace = sync.OnceValue(func() uint64 {
	var st unix.Stat_t
	if unix.Stat("/proc/self/ns/pid", &st) != nil {
		return 0
	}
	return st.Ino
})

// count asks the kernel for its counts.
func count(fd int) (c counts, err error) {
	info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
	for range 10 {
		if err != nil {
			return c, os.NewSyscallError("getsockopt", err)
		}
		c.written = info.Bytes_sent - info.Bytes_retrans + uint64(info.Notsent_bytes)
		c.received = info.Bytes_received
		switch info.State {
		case unix.BPF_TCP_CLOSE_WAIT, unix.BPF_TCP_LAST_ACK, unix.BPF_TCP_CLOSING:
			c.received-- // the kernel counts a FIN
		}
		state := info.State // which the kernel loads before the counts
		if info, err = unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO); err == nil && info.State == state {
			break
		}
	}
	rest, err := unix.IoctlGetInt(fd, unix.SIOCOUTQ) // after written: what is written in between only makes acked less
	c.acked = c.written - min(c.written, uint64(rest))
	return c, os.NewSyscallError("ioctl", err)
}

// say sends a hello, perhaps with a descriptor.
func (m *Meeting) say(peer int, f Facts, file ...int) error {
	v, err := m.view(peer, f)
	if err != nil {
		return err
	}
	b := v.hello()
	var rights []byte
	if len(file) > 0 {
		rights = unix.UnixRights(file...)
	}
	return os.NewSyscallError("sendmsg", unix.Sendmsg(m.fd, b, rights, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL))
}

// hear receives one, with at most one descriptor; -1: none. The error is EAGAIN if it has not arrived.
func (m *Meeting) hear() (b []byte, file int, err error) {
	b = make([]byte, helloLen)
	oob := make([]byte, unix.CmsgSpace(4*4))
	n, k, flags, _, err := unix.Recvmsg(m.fd, b, oob, unix.MSG_DONTWAIT|unix.MSG_CMSG_CLOEXEC)
	if err != nil {
		if err != unix.EAGAIN {
			err = os.NewSyscallError("recvmsg", err)
		}
		return nil, -1, err
	}
	var files []int
	messages, err := unix.ParseSocketControlMessage(oob[:k])
	for i := range messages {
		if f, e := unix.ParseUnixRights(&messages[i]); e == nil {
			files = append(files, f...)
		}
	}
	file = -1
	switch {
	case n == 0:
		err = ErrVanished
	case err != nil || len(files) > 1 || flags&unix.MSG_CTRUNC != 0:
		err = errShort
	case len(files) == 1:
		return b[:n], files[0], nil
	}
	for _, f := range files {
		unix.Close(f)
	}
	return b[:n], file, err
}

func readable(fd int) bool {
	p := unix.PollFd{Fd: int32(fd), Events: unix.POLLIN}
	var now unix.Timespec
	n, _, e := unix.RawSyscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(&p)), 1, uintptr(unsafe.Pointer(&now)), 0, 0, 0)
	return e == 0 && n > 0
}
