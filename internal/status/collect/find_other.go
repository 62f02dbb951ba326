//go:build unix && !linux

package collect

import (
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// find returns the path of the socket of that name, if it is one, and not a link to one.
func (d *directory) find(name string) (path string, release func(), err error) {
	var st unix.Stat_t
	if err := unix.Fstatat(int(d.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return "", nil, &os.PathError{Op: "stat", Path: name, Err: err}
	}
	if uint32(st.Mode)&unix.S_IFMT != unix.S_IFSOCK {
		return "", nil, errNoSocket
	}
	return filepath.Join(d.path, name), func() {}, nil
}
