//go:build unix

package adopt

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// trusted returns an error if another user can have written into a directory of the cache:
// its programs run as this user. What is not there yet is trusted.
func trusted(dir string) error {
	info, err := os.Stat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	owner := int(info.Sys().(*syscall.Stat_t).Uid)
	switch {
	case owner != os.Geteuid() && owner != 0:
		return fmt.Errorf("%s belongs to the user %d: the changed Go of another user is not run; set SDP_GOCACHE to a directory of your own", dir, owner)
	case info.Mode().Perm()&0o002 != 0:
		return fmt.Errorf("%s may be written by every user (mode %o): set SDP_GOCACHE to a directory of your own, or chmod o-w", dir, info.Mode().Perm())
	}
	return nil
}
