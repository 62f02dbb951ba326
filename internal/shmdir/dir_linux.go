package shmdir

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gosdp/gosdp/internal/bubble"
	"github.com/gosdp/gosdp/internal/sysfile"
)

// Dir is a directory that was found to be safe to meet in. Its methods are safe for concurrent
// use. It stays open until the process ends.
type Dir struct {
	path  string
	id    string
	fd    int // for openat and the like: no path is resolved twice
	sweep sweep
}

// Path returns the name under which it was opened.
func (d *Dir) Path() string { return d.path }

// ID is the same string in all processes for which this is the same directory of the same
// kernel, and another one in all others.
func (d *Dir) ID() string { return d.id }

const (
	// openTime is how long Open waits, once. A network file system may not answer at all.
	openTime = 250 * time.Millisecond
	// againTime is after how long a directory is looked at again that could not be used.
	againTime = time.Second
)

// limits are those times that tests change.
var limits = struct{ ask, hold, claim, open, again time.Duration }{AskWithin, HoldTime, claimTime, openTime, againTime}

// opening is a directory that is open, or could not be opened, or is being opened.
type opening struct {
	done chan struct{} // closed when dir and err are set
	dir  *Dir
	err  error
	at   time.Time
}

var dirs struct {
	sync.Mutex
	byPath map[string]*opening
}

// Open returns the directory if it is safe to use: owned by root or our user, not writable by
// everybody unless sticky, and on a file system of this host. It waits for at most
// openTime, once for each path. The result, or the error, is remembered; an error for a second.
func Open(path string) (*Dir, error) {
	if bubble.Inside() { // what it would wait for belongs to the bubble
		return nil, errors.New("not supported inside a testing/synctest bubble")
	}
	dirs.Lock()
	o := dirs.byPath[path]
	fresh := o == nil
	if o != nil && o.finished() && o.err != nil && time.Since(o.at) > limits.again {
		fresh = true
	}
	if fresh {
		o = &opening{done: make(chan struct{})}
		if dirs.byPath == nil {
			dirs.byPath = make(map[string]*opening)
		}
		dirs.byPath[path] = o
		go func() {
			defer close(o.done)
			o.dir, o.err = open(path)
			o.at = time.Now()
		}()
	}
	dirs.Unlock()
	if !o.finished() {
		if !fresh {
			return nil, errors.New("file system not responding")
		}
		late := time.NewTimer(limits.open)
		defer late.Stop()
		select {
		case <-o.done:
		case <-late.C:
			return nil, errors.New("file system not responding")
		}
	}
	return o.dir, o.err
}

func (o *opening) finished() bool {
	select {
	case <-o.done:
		return true
	default:
		return false
	}
}

// forget has the next Open look at the directory again if directory removed. Nobody closes this one.
func (d *Dir) forget() {
	var st unix.Stat_t
	if unix.Fstat(d.fd, &st) != nil || st.Nlink > 0 {
		return
	}
	dirs.Lock()
	defer dirs.Unlock()
	if o := dirs.byPath[d.path]; o != nil && o.finished() && o.dir == d {
		delete(dirs.byPath, d.path)
	}
}

func open(path string) (*Dir, error) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("open", err)
	}
	d := &Dir{path: path, fd: fd}
	if d.id, err = check(fd); err != nil {
		unix.Close(fd)
		return nil, err
	}
	return d, nil
}

// localFileSystems are those whose sockets connect processes of this host, and which answer
// without another host or another process.
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

// localFileSystem reports whether a file system of that type is one of them. The kernel's number has 32
// bits, which are signed where a word has as many.
func localFileSystem(kind int64) bool { return localFileSystems[uint32(kind)] }

// check returns the identity of the directory if it is safe to use.
func check(fd int) (id string, err error) {
	var fs unix.Statfs_t
	if err := unix.Fstatfs(fd, &fs); err != nil {
		return "", os.NewSyscallError("fstatfs", err)
	}
	if kind := int64(fs.Type); !localFileSystem(kind) {
		return "", fmt.Errorf("file system of type %#x may be shared with other hosts", uint32(kind))
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return "", os.NewSyscallError("fstat", err)
	}
	if st.Nlink == 0 { // a volume that is mounted is there when the host has removed its directory
		return "", errors.New("directory removed")
	}
	if err := safe(int(st.Uid), st.Mode, os.Geteuid()); err != nil {
		return "", err
	}
	boot, err := sysfile.Read("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%s\x00directory\x00%x\x00%x", boot, st.Dev, st.Ino), nil
}

// safe returns nil if a directory with this owner and mode is safe for a process of ours.
func safe(owner int, mode uint32, own int) error {
	switch {
	case owner == noUser:
		return errors.New("owner has no uid in this user namespace")
	case owner != 0 && owner != own:
		return fmt.Errorf("owner has uid %d, expected %d or 0", owner, own)
	case mode&unix.S_IWOTH != 0 && mode&unix.S_ISVTX == 0:
		return fmt.Errorf("mode %04o lets every user replace files; set the sticky bit", mode&0o7777)
	}
	return nil
}

// entry is the path of a file in the directory. It is short, whatever the directory's is: the
// path of a Unix socket has at most 107 bytes.
func (d *Dir) entry(file string) string { return fmt.Sprintf("/proc/self/fd/%d/%s", d.fd, file) }

// explain says what an error of creating a file means for the directory.
func (d *Dir) explain(call string, err error) error {
	why := ""
	switch err {
	case unix.EROFS:
		why = "read-only: "
	case unix.ENOSPC, unix.EDQUOT:
		why = "volume full: "
	case unix.EACCES, unix.EPERM:
		why = "no permission to create sockets: "
	case unix.ENOENT:
		why = "directory removed, or /proc not mounted: "
		d.forget()
	}
	return fmt.Errorf("shm directory %s: %s%w", d.path, why, os.NewSyscallError(call, err))
}
