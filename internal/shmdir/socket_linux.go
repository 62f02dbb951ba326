package shmdir

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Bind binds a Unix socket of type SOCK_STREAM to a new file, and listens. Other users can connect to
// it only if shared. The Name leads to this socket and no other: another process may replace
// the file at any time, so its inode is told with it, and that it is the socket's is tried by
// connecting to it. discard closes connections of other processes. With an error no file is left.
func (d *Dir) Bind(fd, backlog int, shared bool, discard func(fd int)) (n Name, err error) {
	rand.Read(n[:randomLen])
	file := n.file()
	if err := d.bind(fd, file, backlog, shared); err != nil {
		return n, err
	}
	inode, err := d.tried(fd, file, discard)
	if err != nil {
		d.Remove(n)
		return n, fmt.Errorf("shm directory %s: %w", d.path, err)
	}
	binary.BigEndian.PutUint64(n[randomLen:], inode)
	d.clean()
	return n, nil
}

// bind binds the socket to a file, and listens.
func (d *Dir) bind(fd int, file string, backlog int, shared bool) error {
	if err := unix.Fchmod(fd, 0o600); err != nil { // which the file inherits
		return os.NewSyscallError("fchmod", err)
	}
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: d.entry(file)}); err != nil {
		return d.explain("bind", err)
	}
	err := os.NewSyscallError("listen", unix.Listen(fd, backlog))
	if err == nil && shared {
		err = d.share(file)
	}
	if err != nil {
		unix.Unlinkat(d.fd, file, 0)
	}
	return err
}

// share lets other users connect to the socket.
func (d *Dir) share(file string) error {
	path, _, err := d.find(file)
	if err != nil {
		return err
	}
	defer unix.Close(path)
	return os.NewSyscallError("chmod", unix.Chmod(itself(path), 0o666))
}

// errReplaced is why a socket is not used.
var errReplaced = errors.New("socket replaced by another process")

// tried returns the inode of the file if it leads to the socket that listens.
func (d *Dir) tried(ln int, file string, discard func(fd int)) (inode uint64, err error) {
	path, inode, err := d.find(file)
	if err != nil {
		return 0, err
	}
	defer unix.Close(path)
	s, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return 0, os.NewSyscallError("socket", err)
	}
	refuseRights(s) // it may be led to another process's socket
	defer func() {
		if err == nil {
			unix.Close(s)
		} else {
			discard(s)
		}
	}()
	if err := unix.Connect(s, &unix.SockaddrUnix{Name: itself(path)}); err != nil {
		return 0, os.NewSyscallError("connect", err)
	}
	var said, heard [16]byte
	rand.Read(said[:])
	if _, err := unix.SendmsgN(s, said[:], nil, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL); err != nil {
		return 0, os.NewSyscallError("sendmsg", err)
	}
	came, _, err := unix.Accept4(ln, unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK)
	if err != nil {
		return 0, errReplaced
	}
	cred, err := unix.GetsockoptUcred(came, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil || int(cred.Pid) != os.Getpid() {
		discard(came) // another process found it first; it may have sent descriptors
		return 0, errReplaced
	}
	defer unix.Close(came)
	// Another goroutine's attempt may have been led here.
	if k, _, err := unix.Recvfrom(came, heard[:], unix.MSG_DONTWAIT); err != nil || k != len(heard) || heard != said {
		return 0, errReplaced
	}
	return inode, nil
}

// Connect connects fd to the socket of that name. It waits for nothing.
func (d *Dir) Connect(fd int, n Name) error {
	path, inode, err := d.find(n.file())
	if err != nil {
		return fmt.Errorf("shm directory %s: client's socket: %w", d.path, err)
	}
	defer unix.Close(path)
	if inode != n.inode() {
		return fmt.Errorf("shm directory %s: %w", d.path, errReplaced)
	}
	if err := unix.Connect(fd, &unix.SockaddrUnix{Name: itself(path)}); err != nil {
		return os.NewSyscallError("connect", err)
	}
	d.clean()
	return nil
}

// Remove removes the file of that name.
func (d *Dir) Remove(n Name) { unix.Unlinkat(d.fd, n.file(), 0) }

// find opens the file, which must be a socket, as a path: what is done with the descriptor is
// done to this inode. It follows no link, and has no effect on the file.
func (d *Dir) find(file string) (path int, inode uint64, err error) {
	path, err = unix.Openat(d.fd, file, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, 0, os.NewSyscallError("openat", err)
	}
	var st unix.Stat_t
	err = os.NewSyscallError("fstat", unix.Fstat(path, &st))
	if err == nil && st.Mode&unix.S_IFMT != unix.S_IFSOCK {
		err = fmt.Errorf("%s is not a socket", file)
	}
	if err != nil {
		unix.Close(path)
		return -1, 0, err
	}
	return path, st.Ino, nil
}

// itself is a path that leads to the file that the descriptor stands for.
func itself(path int) string { return fmt.Sprintf("/proc/self/fd/%d", path) }

// randomFile returns a new name with that prefix.
func randomFile(prefix string) string {
	var b [randomLen]byte
	rand.Read(b[:])
	return prefix + hex.EncodeToString(b[:])
}

// Any process that connects to a socket can send descriptors over it, and closing one may
// block for as long as the sender likes. Linux 6.16 and later refuse them at the sender. Where the
// kernel accepts them, closing is done by goroutines. While mostBlocked of them take longer than
// blockedAfter, and a close that does not block never takes so long, there are no further connections.

const (
	mostBlocked  = 64
	blockedAfter = 5 * time.Millisecond
)

var (
	takesRights atomic.Bool  // a socket could not be told to refuse descriptors
	blocked     atomic.Int32 // closes that have taken longer than blockedAfter

	rightsOption = unix.SO_PASSRIGHTS // tests replace it
)

func refuseRights(fd int) {
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, rightsOption, 0) != nil {
		takesRights.Store(true)
	}
}

// heldUp reports that no more connections with other processes are to be made or accepted.
func heldUp() bool { return blocked.Load() >= mostBlocked }

// errBlocked is why a dialler does not visit a listener while heldUp.
var errBlocked = errors.New("too many closes of sockets blocked by another process")

// discard closes a connection over which descriptors may have come.
func discard(fd int) {
	if !takesRights.Load() {
		unix.Close(fd)
		return
	}
	late := time.AfterFunc(blockedAfter, func() { blocked.Add(1) })
	go func() {
		unix.Close(fd)
		if !late.Stop() {
			blocked.Add(-1)
		}
	}()
}
