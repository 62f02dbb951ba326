package localpeer

import (
	"encoding/binary"
	"net"
	"net/netip"
	"runtime"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A listener's mark is IP_FREEBIND together with IP_BIND_ADDRESS_NO_PORT. Both take effect when
// a socket is bound, and not afterwards; other programs do not set both; and listeners of
// multipath TCP, which package net makes by default, support them. (They do not support
// IP_MULTICAST_ALL, which is off on IPv6 sockets anyway.) A dialler is not bound yet when it
// is marked. Its mark is that IP_MULTICAST_LOOP, an option for datagrams, is off.
func set(c syscall.RawConn, r Role, on bool) (err error) {
	failed := c.Control(func(fd uintptr) {
		value := 0
		if on {
			value = 1
		}
		switch r {
		case Listener:
			err = markListener(int(fd), value)
		case Dialler:
			err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_MULTICAST_LOOP, 1-value)
		}
	})
	if failed != nil {
		return failed
	}
	return err
}

var marksMultipath = sync.OnceValue(func() bool {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, unix.IPPROTO_MPTCP)
	if err != nil {
		return true // there are none
	}
	defer unix.Close(fd)
	return markListener(fd, 1) == nil
})

func markListener(fd, value int) error {
	if err := unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_FREEBIND, value); err != nil {
		return err
	}
	return unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_BIND_ADDRESS_NO_PORT, value)
}

// Constants of <linux/sock_diag.h> and <linux/inet_diag.h>.
const (
	sockDiagByFamily = 20
	noCookie         = 0xffffffff
	optionsAttribute = 22 // INET_DIAG_SOCKOPT
	headerLen        = unix.NLMSG_HDRLEN
	requestLen       = headerLen + 56
	replyLen         = 72 // struct inet_diag_msg

	optionFreebind      = 1 << 2 // in the first byte of struct inet_diag_sockopt
	optionMulticastLoop = 1 << 4
	optionNoPort        = 1 << 0 // in the second

	stateSynReceived = 3
	stateNewSyn      = 12 // a request that is no socket yet
)

// diag is a socket of NETLINK_SOCK_DIAG. Requests and replies alternate.
type diag struct {
	fd     int
	cookie uint64 // of its network namespace; 0: the kernel has none
	seq    uint32
	b      [1024]byte
}

// diags keeps one diag for the lifetime of the process.
var diags struct {
	sync.Mutex
	kept   *diag
	denied bool // permanently
}

func open() (*diag, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_INET_DIAG)
	if err != nil {
		return nil, err
	}
	return &diag{fd: fd, cookie: namespaceOf(fd)}, nil
}

// namespaceOf returns the cookie of a socket's network namespace.
func namespaceOf(fd int) uint64 {
	cookie, err := unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
	if err != nil {
		return 0
	}
	return cookie
}

// keep returns the socket that is kept, and opens it first if necessary. The caller must hold
// the lock.
func keep() *diag {
	if diags.kept != nil || diags.denied {
		return diags.kept
	}
	d, err := open()
	switch err {
	case nil:
	case unix.EMFILE, unix.ENFILE, unix.ENOMEM, unix.ENOBUFS: // the next call may succeed
		return nil
	default:
		diags.denied = true
		return nil
	}
	// The socket may open although requests on it are filtered.
	nobody := netip.AddrPortFrom(netip.IPv4Unspecified(), 0)
	if _, err := d.ask(unix.AF_INET, nobody, nobody); err != nil && err != ErrElsewhere {
		unix.Close(d.fd)
		diags.denied = true
		return nil
	}
	diags.kept = d
	return d
}

func sees(listener syscall.RawConn) bool {
	var cookie uint64
	if err := listener.Control(func(fd uintptr) { cookie = namespaceOf(int(fd)) }); err != nil {
		return false
	}
	diags.Lock()
	defer diags.Unlock()
	d := keep()
	return d != nil && d.cookie == cookie
}

func sighted() bool {
	diags.Lock()
	defer diags.Unlock()
	return keep() != nil
}

// settleTime is how long the other end of a connection may take to become a socket: connect
// returns shortly before the kernel has processed the acknowledgment that makes it one. If
// the queue of the listener is full that takes too long to wait for.
const (
	settleTime  = time.Millisecond
	settleTurns = 10000 // if the clock stands still
)

func other(c net.Conn) (End, error) { return look(c, false) }

func own(c net.Conn) (End, error) { return look(c, true) }

// shows reads the options that inet_diag would report. A request that does not name a device does
// not find a socket that is bound to one.
func shows(c net.Conn, r Role) bool {
	sc, ok := c.(syscall.Conn)
	if !ok { // the program has wrapped it
		e, err := own(c)
		return err == nil && (r == Listener && e.Listener || r == Dialler && e.Dialler)
	}
	rc, err := sc.SyscallConn()
	return err == nil && marked(rc, r)
}

func marked(c syscall.RawConn, r Role) (is bool) {
	c.Control(func(fd uintptr) {
		has := func(level, option, value int) bool {
			v, err := unix.GetsockoptInt(int(fd), level, option)
			return err == nil && v == value
		}
		is = has(unix.SOL_SOCKET, unix.SO_BINDTOIFINDEX, 0)
		switch r {
		case Listener:
			is = is && has(unix.IPPROTO_IP, unix.IP_FREEBIND, 1) && has(unix.IPPROTO_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1)
		case Dialler:
			is = is && has(unix.IPPROTO_IP, unix.IP_MULTICAST_LOOP, 0)
		}
	})
	return is
}

// look queries the other end of c, or c as the other end would see it.
func look(c net.Conn, own bool) (End, error) {
	local, ok := c.LocalAddr().(*net.TCPAddr)
	remote, ok2 := c.RemoteAddr().(*net.TCPAddr)
	if !ok || !ok2 {
		return End{}, ErrElsewhere
	}
	var cookie uint64 // 0: a connection that the program has wrapped is assumed to be here
	if sc, ok := c.(syscall.Conn); ok {
		rc, err := sc.SyscallConn()
		if err != nil {
			return End{}, ErrElsewhere
		}
		if err := rc.Control(func(fd uintptr) { cookie = namespaceOf(int(fd)) }); err != nil {
			return End{}, ErrElsewhere
		}
	}
	family := uint8(unix.AF_INET)
	here, there := bare(local), bare(remote)
	if own {
		here, there = there, here
	}
	if here.Addr().Is6() {
		family = unix.AF_INET6
	}
	diags.Lock()
	defer diags.Unlock()
	d := keep()
	if d == nil {
		return End{}, ErrBlind
	}
	if d.cookie != cookie && cookie != 0 { // the program uses several namespaces
		var err error
		if d, err = open(); err != nil {
			return End{}, ErrBlind
		}
		defer unix.Close(d.fd)
		if d.cookie != cookie {
			return End{}, ErrBlind
		}
	}
	return settle(func() (found, error) { return d.ask(family, here, there) }, func() {
		diags.Unlock()
		runtime.Gosched()
		diags.Lock()
	})
}

// settle asks until the other end is a socket, and yields in between. It asks once more when the time
// is over: this process may have been without a processor, but not the kernel.
func settle(ask func() (found, error), yield func()) (End, error) {
	var begin time.Time
	for turn := 0; ; turn++ {
		late := turn > settleTurns || !begin.IsZero() && time.Since(begin) > settleTime
		found, err := ask()
		switch {
		case err != nil || !found.unborn:
			return found.End, err
		case late:
			return End{}, ErrElsewhere
		case begin.IsZero():
			begin = time.Now()
		}
		yield()
	}
}

// bare returns an address as the kernel keeps it.
func bare(a *net.TCPAddr) netip.AddrPort {
	ap := a.AddrPort()
	return netip.AddrPortFrom(ap.Addr().Unmap().WithZone(""), ap.Port())
}

// found is an End. unborn says that the kernel has not made the socket yet.
type found struct {
	End
	unborn bool
}

// ask queries the socket whose local address is there and whose remote address is here.
func (d *diag) ask(family uint8, here, there netip.AddrPort) (found, error) {
	d.seq++
	b := d.b[:requestLen]
	clear(b)
	native := binary.NativeEndian
	native.PutUint32(b, uint32(len(b)))
	native.PutUint16(b[4:], sockDiagByFamily)
	native.PutUint16(b[6:], unix.NLM_F_REQUEST)
	native.PutUint32(b[8:], d.seq)
	r := b[headerLen:]
	r[0], r[1] = family, unix.IPPROTO_TCP
	native.PutUint32(r[4:], ^uint32(0)) // in any state
	binary.BigEndian.PutUint16(r[8:], there.Port())
	binary.BigEndian.PutUint16(r[10:], here.Port())
	copy(r[12:28], there.Addr().AsSlice())
	copy(r[28:44], here.Addr().AsSlice())
	native.PutUint32(r[48:], noCookie)
	native.PutUint32(r[52:], noCookie)
	if err := unix.Sendto(d.fd, b, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return found{}, ErrBlind
	}
	for {
		n, _, err := unix.Recvfrom(d.fd, d.b[:], unix.MSG_DONTWAIT)
		if err == unix.EINTR {
			continue
		}
		if err != nil || n < headerLen {
			return found{}, ErrBlind
		}
		if native.Uint32(d.b[8:]) == d.seq { // else the answer to a question that was given up
			return parse(d.b[:n], here, there)
		}
	}
}

// parse reads the kernel's answer.
func parse(b []byte, here, there netip.AddrPort) (found, error) {
	native := binary.NativeEndian
	switch kind := native.Uint16(b[4:]); {
	case kind == unix.NLMSG_ERROR && len(b) >= headerLen+4:
		switch unix.Errno(-int32(native.Uint32(b[headerLen:]))) {
		case unix.ENOENT, unix.ESTALE:
			return found{}, ErrElsewhere
		}
		return found{}, ErrBlind
	case kind != sockDiagByFamily || len(b) < headerLen+replyLen:
		return found{}, ErrBlind
	}
	m := b[headerLen:]
	var f found
	other := binary.BigEndian.Uint16(m[4:]) != there.Port() || binary.BigEndian.Uint16(m[6:]) != here.Port()
	switch state := m[1]; {
	case other: // a listener with the same port, and not the other end
		f.End = marks(m)
		return f, ErrElsewhere
	case state == stateSynReceived || state == stateNewSyn:
		return found{unborn: true}, nil
	}
	f.End = marks(m)
	f.UID, f.Owned = native.Uint32(m[64:]), native.Uint32(m[68:]) != 0
	return f, nil
}

// marks reads the marks from m, a struct inet_diag_msg with the attributes that follow it.
func marks(m []byte) (e End) {
	native := binary.NativeEndian
	for a := m[replyLen:]; len(a) >= unix.SizeofRtAttr; {
		length := int(native.Uint16(a))
		if length < unix.SizeofRtAttr || length > len(a) {
			break
		}
		if native.Uint16(a[2:]) == optionsAttribute && length >= unix.SizeofRtAttr+2 {
			o := a[unix.SizeofRtAttr:]
			e.Listener = o[0]&optionFreebind != 0 && o[1]&optionNoPort != 0
			e.Dialler = o[0]&optionMulticastLoop == 0
		}
		a = a[min((length+3)&^3, len(a)):]
	}
	return e
}
