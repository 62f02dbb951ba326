//go:build linux

package shm

import (
	"errors"
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// A process that can connect to a Unix socket can send descriptors over it (SCM_RIGHTS). The
// process that drops the last reference to one closes it, and closing may block for as long
// as the sender wants: a TCP socket with SO_LINGER and unsent data does. So an end accepts no
// descriptor except the memory file.
//
// Linux 6.16 and later refuse descriptors at the sender (SO_PASSRIGHTS). Older kernels accept
// them. There an end looks at the queue before it reads, and leaves a message with a
// descriptor unread. The descriptor is dropped when the socket is closed (closeAside).

// rightsOption is SO_PASSRIGHTS. Tests set it to an option that no kernel has.
var rightsOption atomic.Int32

// takesRights is set if the kernel cannot make a socket refuse descriptors.
var takesRights atomic.Bool

func init() { rightsOption.Store(unix.SO_PASSRIGHTS) }

// passRights sets whether the socket accepts descriptors, if the kernel has that option.
// Accepted sockets inherit it from the listening one.
func passRights(fd int, pass bool) {
	value := 0
	if pass {
		value = 1
	}
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, int(rightsOption.Load()), value) != nil {
		takesRights.Store(true)
	}
}

func refuseRights(fd int) { passRights(fd, false) }

// errRights means that the peer has sent a descriptor that it must not send.
var errRights = errors.New("shm: received an unexpected file descriptor")

// receive reads what has arrived, but leaves it in the socket if a descriptor comes with it. It
// returns EAGAIN if nothing has arrived.
func receive(fd int, b []byte) (int, error) {
	for {
		// A peek without room for descriptors reports them, and keeps them queued.
		n, _, flags, _, err := unix.Recvmsg(fd, b, nil, unix.MSG_PEEK|unix.MSG_DONTWAIT)
		if err == nil && flags&unix.MSG_CTRUNC != 0 {
			return 0, errRights
		}
		if err == nil && n > 0 {
			n, _, _, _, err = unix.Recvmsg(fd, b[:n], nil, unix.MSG_DONTWAIT)
		}
		switch {
		case err == unix.EINTR:
		case err == nil && n == 0:
			return 0, errLeft
		default:
			return n, err
		}
	}
}

// mostFiles is the maximum number of descriptors in a message (SCM_MAX_FD). With room for all
// of them the kernel drops none, which could block.
const mostFiles = 253

// nothingQueued returns an error if the peer has sent more than the decision. The rest may have
// descriptors that arrived while the socket accepted them.
func nothingQueued(fd int) error {
	var b [1]byte
	if n, _, _, _, _ := unix.Recvmsg(fd, b[:], nil, unix.MSG_PEEK|unix.MSG_DONTWAIT); n > 0 {
		return errors.New("shm: unexpected data after the decision message")
	}
	return nil
}

// inline makes urgent bytes part of the stream. Otherwise a read skips them silently, and drops
// the descriptors that come with them.
func inline(fd int) error {
	return os.NewSyscallError("SO_OOBINLINE", unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_OOBINLINE, 1))
}

// readWithFiles fills b with one message, which must have arrived, and returns the descriptors
// that came with it, even if it returns an error.
func readWithFiles(fd int, b []byte) (came files, err error) {
	oob := make([]byte, unix.CmsgSpace(4*mostFiles))
	var n, k, flags int
	for err = unix.EINTR; err == unix.EINTR; {
		n, k, flags, _, err = unix.Recvmsg(fd, b, oob, unix.MSG_DONTWAIT|unix.MSG_CMSG_CLOEXEC)
	}
	switch {
	case err != nil:
		return nil, err
	case n == 0:
		return nil, errLeft
	}
	messages, err := unix.ParseSocketControlMessage(oob[:k])
	if err != nil {
		return nil, err
	}
	for i := range messages {
		if fds, err := unix.ParseUnixRights(&messages[i]); err == nil {
			came = append(came, fds...)
		}
	}
	switch {
	case len(came) > 1:
		err = errors.New("shm: received more than one file descriptor")
	case flags&unix.MSG_CTRUNC != 0:
		err = errors.New("shm: cannot receive a file descriptor: limit reached (RLIMIT_NOFILE)")
	case n < len(b):
		err = errShort
	}
	return came, err
}

// errLeft means that the peer has closed the channel before it was open, and errShort that a
// message of the peer is incomplete.
var (
	errLeft  = errors.New("shm: peer closed the channel during setup")
	errShort = errors.New("shm: short rendezvous message from peer")
)
