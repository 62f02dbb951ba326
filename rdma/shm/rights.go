//go:build linux

package shm

import (
	"errors"
	"io"
	"net"
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Anyone who can connect to a Unix socket can send descriptors over it (SCM_RIGHTS),
// and the process that takes or drops the last reference to one closes it. Closing may
// block for as long as the sender likes: a TCP socket with SO_LINGER and unsent data
// does. So nothing that a stranger or a peer sends may be a descriptor, except for the
// memory file.
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

// setRights is passRights on a connection.
func setRights(conn *net.UnixConn, pass bool) error {
	rc, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	return rc.Control(func(fd uintptr) { passRights(int(fd), pass) })
}

// errRights is why the peer is not heard any further.
var errRights = errors.New("shm: a descriptor came, and none is wanted")

// readBytes fills b. It fails, and leaves the descriptor where it is, if one comes with
// the bytes.
func readBytes(conn *net.UnixConn, b []byte) error {
	rc, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	for len(b) > 0 {
		var n, flags int
		var failed error
		if err := rc.Read(func(fd uintptr) bool {
			for {
				// A peek without room for descriptors reports them, and keeps them queued.
				n, _, flags, _, failed = unix.Recvmsg(int(fd), b, nil, unix.MSG_PEEK|unix.MSG_DONTWAIT)
				if failed == nil && flags&unix.MSG_CTRUNC == 0 && n > 0 {
					n, _, _, _, failed = unix.Recvmsg(int(fd), b[:n], nil, unix.MSG_DONTWAIT)
				}
				if failed != unix.EINTR {
					return failed != unix.EAGAIN
				}
			}
		}); err != nil {
			return err
		}
		switch {
		case failed != nil:
			return ended(failed)
		case flags&unix.MSG_CTRUNC != 0:
			return errRights
		case n == 0:
			return ended(io.EOF)
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
func nothingQueued(conn *net.UnixConn) error {
	rc, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	if e := rc.Control(func(fd uintptr) {
		var b [1]byte
		n, _, _, _, _ := unix.Recvmsg(int(fd), b[:], nil, unix.MSG_PEEK|unix.MSG_DONTWAIT)
		if n > 0 {
			err = errors.New("shm: more has come than the answer")
		}
	}); e != nil {
		return e
	}
	return err
}

// inline has urgent bytes come in their place. Otherwise a read passes over one without a
// word, and drops the descriptors that come with it.
func inline(fd int) error {
	return os.NewSyscallError("SO_OOBINLINE", unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_OOBINLINE, 1))
}

// readWithFiles fills b, and appends the descriptors that come with it. It goes on
// only while they are one at most, since each byte may bring some.
func readWithFiles(conn *net.UnixConn, b []byte, came *files) error {
	oob := make([]byte, unix.CmsgSpace(4*mostFiles))
	for len(b) > 0 {
		n, k, flags, _, err := conn.ReadMsgUnix(b, oob)
		if err == nil && n == 0 && k == 0 {
			err = io.EOF
		}
		if err != nil {
			return ended(err)
		}
		messages, err := unix.ParseSocketControlMessage(oob[:k])
		if err != nil {
			return err
		}
		for i := range messages {
			if fds, err := unix.ParseUnixRights(&messages[i]); err == nil {
				*came = append(*came, fds...)
			}
		}
		switch {
		case len(*came) > 1:
			return errors.New("shm: more than one descriptor came")
		case flags&unix.MSG_CTRUNC != 0:
			return errors.New("shm: a descriptor came, and this process has no room for it")
		}
		b = b[n:]
	}
	return nil
}

func ended(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("shm: the peer has closed the channel before it was open")
	}
	return err
}
