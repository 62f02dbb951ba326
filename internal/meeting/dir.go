//go:build linux

package meeting

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// CheckDir returns why programs of different network namespaces should not meet in a directory: another user than root or
// the own one could replace what lies in it.
func CheckDir(path string) error {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return os.NewSyscallError("stat", err)
	}
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFDIR:
		return unix.ENOTDIR
	case st.Uid != 0 && int(st.Uid) != os.Geteuid():
		return errors.New("owned by another user")
	case st.Mode&unix.S_IWOTH != 0 && st.Mode&unix.S_ISVTX == 0:
		return errors.New("writable by every user, and not sticky")
	}
	return nil
}
