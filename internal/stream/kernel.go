//go:build linux

package stream

import (
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// counts is what the kernel knows about the payload of a TCP connection, through whichever descriptor
// of the socket it went.
type counts struct {
	state    uint8
	written  uint64
	received uint64 // read or not; a FIN counts as one
	unread   uint64
}

// States of a TCP connection (linux/tcp.h).
const (
	tcpEstablished = 1
	tcpFinWait1    = 4
	tcpFinWait2    = 5
	tcpCloseWait   = 8
)

// count asks the kernel. How many bytes are unread takes another system call, so count repeats both until nothing
// has arrived in between.
func count(fd int) (c counts, ok bool) {
	for range 20 {
		before := c.received
		info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
		if err != nil {
			return c, false
		}
		c.state, c.received = info.State, info.Bytes_received
		c.written = info.Bytes_sent - info.Bytes_retrans + uint64(info.Notsent_bytes)
		if c.received == before {
			return c, true
		}
		n, err := unix.IoctlGetInt(fd, unix.SIOCINQ)
		if err != nil {
			return c, false
		}
		c.unread = uint64(n)
	}
	return c, false
}

// use is who uses a socket.
type use int

const (
	own     use = iota // the Conn alone
	shared             // another descriptor, too
	altered            // a filter or TCP_ULP, which sees or changes the bytes
	ending             // the peer's FIN has arrived
	unknown            // too much arrives to tell
)

// exclusive compares what the kernel has counted with what the Conn has. The counts move while the kernel works, so
// it looks a few times.
func exclusive(fd uintptr, same func(counts) bool) use {
	if hooked(fd) {
		return altered
	}
	for range 10 {
		k, ok := count(int(fd))
		switch {
		case !ok:
			return unknown
		case k.state != tcpEstablished && k.state != tcpFinWait1 && k.state != tcpFinWait2 && k.state != tcpCloseWait:
			return ending
		case same(k):
			return own
		case k.state == tcpCloseWait:
			return ending
		}
		runtime.Gosched()
	}
	return shared
}

// hooked reports whether the socket has a filter or an upper layer protocol, such as the kernel's TLS.
func hooked(fd uintptr) bool {
	var name [16]byte // of the protocol; its length is 0 if there is none
	size := uint32(len(name))
	_, _, err := unix.Syscall6(unix.SYS_GETSOCKOPT, fd, unix.IPPROTO_TCP, unix.TCP_ULP,
		uintptr(unsafe.Pointer(&name)), uintptr(unsafe.Pointer(&size)), 0)
	if err == 0 && size > 0 {
		return true
	}
	size = 0 // the kernel then returns the length of the filter
	_, _, err = unix.Syscall6(unix.SYS_GETSOCKOPT, fd, unix.SOL_SOCKET, unix.SO_GET_FILTER, 0, uintptr(unsafe.Pointer(&size)), 0)
	return err == unix.EACCES || err == 0 && size > 0 // EACCES: a filter that cannot be read
}
