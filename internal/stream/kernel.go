//go:build linux

package stream

import (
	"runtime"

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
	ending             // the peer's FIN has arrived
	unknown            // too much arrives to tell
)

// exclusive compares what the kernel has counted with what the Conn has. The counts move while the kernel works, so
// it looks a few times.
func exclusive(fd uintptr, same func(counts) bool) use {
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
