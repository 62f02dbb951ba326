//go:build linux

package meeting

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// localFileSystems are those whose sockets connect processes of one host, and which no other process serves.
var localFileSystems = map[uint32]bool{
	unix.TMPFS_MAGIC:           true,
	unix.RAMFS_MAGIC:           true,
	unix.EXT4_SUPER_MAGIC:      true, // and ext2, ext3
	unix.XFS_SUPER_MAGIC:       true,
	unix.BTRFS_SUPER_MAGIC:     true,
	unix.F2FS_SUPER_MAGIC:      true,
	unix.OVERLAYFS_SUPER_MAGIC: true,
	0x2fc12fc1:                 true, // ZFS
	0xca451a4e:                 true, // bcachefs
}

// CheckDir returns why programs of different network namespaces should not meet in a directory: another user than root or
// the own one could replace what lies in it, or its file system may be another host's, and may not answer.
func CheckDir(path string) error {
	var fs unix.Statfs_t
	if err := unix.Statfs(path, &fs); err != nil {
		return os.NewSyscallError("statfs", err)
	}
	if kind := uint32(fs.Type); !localFileSystems[kind] {
		return fmt.Errorf("file system of type %#x may be shared with other hosts", kind)
	}
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return os.NewSyscallError("stat", err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return unix.ENOTDIR
	}
	return safe(st.Uid, st.Mode, os.Geteuid())
}

// safe returns why a directory with this owner and mode is not safe for a process of the user own.
func safe(owner, mode uint32, own int) error {
	switch {
	case owner == unmapped:
		return errors.New("owner has no uid in this user namespace")
	case owner != 0 && int(owner) != own:
		return fmt.Errorf("owner has uid %d, expected %d or 0", owner, own)
	case mode&unix.S_IWOTH != 0 && mode&unix.S_ISVTX == 0:
		return fmt.Errorf("mode %04o lets every user replace files; set the sticky bit", mode&0o7777)
	}
	return nil
}

// unmapped is the uid that the kernel shows for a user of another user namespace.
const unmapped = 65534

// prefix begins the names of sockets in a directory.
var prefix = fmt.Sprintf("v%d-", version)

// bindIn binds a Unix socket to a file, to which other users can connect only if shared.
func bindIn(dir, name string, fd int, shared bool) error {
	if err := unix.Fchmod(fd, 0o600); err != nil { // which the file inherits
		return os.NewSyscallError("fchmod", err)
	}
	path := filepath.Join(dir, name)
	err := bindTo(path, fd)
	if err == unix.EADDRINUSE && removeLeftover(path) {
		err = bindTo(path, fd)
	}
	if err == nil && shared {
		if err = share(path); err != nil {
			unix.Unlink(path)
		}
	}
	return err
}

// bindTo is bind for a path of any length: that in a socket's address has at most 107 bytes.
func bindTo(path string, fd int) error {
	if len(path) < len(unix.RawSockaddrUnix{}.Path) {
		return unix.Bind(fd, &unix.SockaddrUnix{Name: path})
	}
	dir, err := unix.Open(filepath.Dir(path), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	err = unix.Bind(fd, &unix.SockaddrUnix{Name: itself(dir) + "/" + filepath.Base(path)})
	if err == unix.ENOENT {
		err = fmt.Errorf("a path longer than a socket's address needs /proc: %w", err)
	}
	return err
}

// share lets other users connect to a socket of this process.
func share(path string) error {
	fd, _, err := find(path)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return os.NewSyscallError("chmod", unix.Chmod(itself(fd), 0o666))
}

// find opens a socket as a path: what is done with the descriptor is done to this file, whatever takes its
// name. It follows no link, and has no effect on the file.
func find(path string) (fd int, st unix.Stat_t, err error) {
	fd, err = unix.Open(path, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, st, os.NewSyscallError("open", err)
	}
	if err = os.NewSyscallError("fstat", unix.Fstat(fd, &st)); err == nil && st.Mode&unix.S_IFMT != unix.S_IFSOCK {
		err = errNoSocket
	}
	if err != nil {
		unix.Close(fd)
		return -1, st, err
	}
	return fd, st, nil
}

var errNoSocket = errors.New("file in the directory is not a socket")

// itself is a path that leads to the file for which the descriptor stands.
func itself(fd int) string { return fmt.Sprintf("/proc/self/fd/%d", fd) }

// connectIn connects a Unix socket to that of a file. The error is ECONNREFUSED if nobody listens.
func connectIn(dir, name string, fd int) error {
	path := filepath.Join(dir, name)
	at, st, err := find(path)
	if errors.Is(err, unix.ENOENT) {
		return unix.ECONNREFUSED
	}
	if err != nil {
		return err
	}
	err = unix.Connect(fd, &unix.SockaddrUnix{Name: itself(at)})
	unix.Close(at)
	if err == unix.ECONNREFUSED && isOld(&st) {
		unix.Unlink(path)
	}
	return err
}

// oldAge is how old a socket must be to count as one of a process that was killed, if it refuses connections. A new
// socket refuses them until its process calls listen.
var oldAge = 10 * time.Second

// isOld reports whether a socket of root's or this user's is old.
func isOld(st *unix.Stat_t) bool {
	return (st.Uid == 0 || int(st.Uid) == os.Geteuid()) && time.Since(time.Unix(st.Ctim.Unix())) > oldAge
}

// removeLeftover removes a socket that a killed process has left behind, and reports whether it did.
func removeLeftover(path string) bool {
	at, st, err := find(path)
	if err != nil {
		return false
	}
	defer unix.Close(at)
	if !isOld(&st) {
		return false
	}
	fd, err := unixSocket()
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	return unix.Connect(fd, &unix.SockaddrUnix{Name: itself(at)}) == unix.ECONNREFUSED && unix.Unlink(path) == nil
}

// Dialler sweep a directory, so that leftovers of killed processes do not accumulate. What one sweep does is limited.
const (
	sweepEvery = 10 * time.Second
	sweepBytes = 32 << 10 // of the list of files, some 700
	sweepMost  = 256      // sockets to which it connects
)

var swept struct {
	sync.Mutex
	at map[string]time.Time // by directory
}

// sweep removes leftovers from a directory, if this process has not done so for a while.
func sweep(dir string) {
	now := time.Now()
	swept.Lock()
	last, ok := swept.at[dir]
	due := !ok || now.Sub(last) > sweepEvery
	if due {
		if swept.at == nil {
			swept.at = make(map[string]time.Time)
		}
		swept.at[dir] = now
	}
	swept.Unlock()
	if !due {
		return
	}
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	list := make([]byte, sweepBytes)
	n, err := unix.Getdents(fd, list)
	unix.Close(fd)
	if err != nil {
		return
	}
	_, _, names := unix.ParseDirent(list[:n], -1, nil)
	left := sweepMost
	for _, name := range names {
		if strings.HasPrefix(name, prefix) && left > 0 {
			removeLeftover(filepath.Join(dir, name))
			left--
		}
	}
}
