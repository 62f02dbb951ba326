//go:build unix

package status

import (
	"errors"
	"os"
	"syscall"
)

// Owner returns the user to whom a file belongs.
func Owner(info os.FileInfo) (uid int, ok bool) {
	s, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, false
	}
	return int(s.Uid), true
}

// Alive reports whether there is a process with this number.
func Alive(pid int) bool {
	err := syscall.Kill(pid, 0)
	return err == nil || errors.Is(err, syscall.EPERM)
}
