//go:build linux

package shm

import (
	"errors"
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Anyone who can connect to a Unix socket can send descriptors over it (SCM_RIGHTS),
// and the process that takes or drops the last reference to one closes it. Closing may
// block for as long as the sender likes: a TCP socket with SO_LINGER and unsent data
// does. So nothing that a stranger sends may be a descriptor, and nothing that a peer
// sends, except for the memory file.
//
// Linux 6.16 and later refuse descriptors at the sender (SO_PASSRIGHTS). Older kernels
// accept them. There the ends look at the queue before they read, and leave what holds a
// descriptor unread; only close then drops it, which closeAside does.

// rightsOption is SO_PASSRIGHTS. Tests set it to an option that no kernel has.
var rightsOption atomic.Int32

// takesRights is set once a socket could not be told to refuse descriptors.
var takesRights atomic.Bool

func init() { rightsOption.Store(unix.SO_PASSRIGHTS) }

// passRights tells the socket whether to accept descriptors, if the kernel can. An
// accepted socket inherits what its listener was told.
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

// errRights is why the peer is not heard any further.
var errRights = errors.New("shm: a descriptor came, and none is wanted")

// receive reads what is there, and leaves it if a descriptor comes with it. EAGAIN: there is
// nothing.
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

// readBytes fills b, and waits for that. It fails, and leaves the descriptor where it is, if
// one comes with the bytes.
func readBytes(conn *os.File, b []byte) error {
	rc, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	for len(b) > 0 {
		var n int
		var failed error
		if err := rc.Read(func(fd uintptr) bool {
			n, failed = receive(int(fd), b)
			return failed != unix.EAGAIN
		}); err != nil {
			return err
		}
		if failed != nil {
			return failed
		}
		b = b[n:]
	}
	return nil
}

// mostFiles is the most descriptors that the kernel sends with a message (SCM_MAX_FD).
// With room for all of them it drops none, which could block.
const mostFiles = 253

// nothingQueued returns an error if the peer has sent more than it should have so far: it
// may hold descriptors that came while the socket accepted them.
func nothingQueued(fd int) error {
	var b [1]byte
	if n, _, _, _, _ := unix.Recvmsg(fd, b[:], nil, unix.MSG_PEEK|unix.MSG_DONTWAIT); n > 0 {
		return errors.New("shm: more has come than the decision")
	}
	return nil
}

// inline has urgent bytes come in their place. Otherwise a read passes over one without a
// word, and drops the descriptors that come with it.
func inline(fd int) error {
	return os.NewSyscallError("SO_OOBINLINE", unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_OOBINLINE, 1))
}

// readWithFiles fills b with what the peer has said at once, which is there, and returns
// the descriptors that came with it, also with an error.
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
		err = errors.New("shm: more than one descriptor came")
	case flags&unix.MSG_CTRUNC != 0:
		err = errors.New("shm: a descriptor came, and this process has no room for it")
	case n < len(b):
		err = errShort
	}
	return came, err
}

// errLeft is why a channel does not come up whose other end has closed it, errShort one of
// which less was said than belongs to it.
var (
	errLeft  = errors.New("shm: the peer has closed the channel before it was open")
	errShort = errors.New("shm: the peer has said less than it should")
)
