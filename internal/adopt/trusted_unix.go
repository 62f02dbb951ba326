//go:build unix

package adopt

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// trusted returns an error if another user can have written into a directory of the cache, or can
// put another one in its place: its programs run as this user.
func trusted(dir string) error {
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return err
	}
	for _, path := range []string{dir, real} {
		if err := safe(path, false); err != nil {
			return err
		}
		for above := filepath.Dir(path); above != path; path, above = above, filepath.Dir(above) {
			if err := safe(above, true); err != nil {
				return err
			}
		}
	}
	return nil
}

// safe returns an error if another user can replace what is in a directory, or add to it. In a
// directory above the cache they may add files (sticky, as /tmp). Root may have the home directory of
// another user, as in many containers, who can have the go command do anything: its settings are there.
func safe(dir string, above bool) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	owner, group := ids(info)
	mode := info.Mode()
	const advice = "set SDP_GOCACHE to a directory of your own"
	switch {
	case owner != os.Geteuid() && owner != 0 && !(above && (os.Geteuid() == 0 || ownsAll(owner))):
		return fmt.Errorf("%s is owned by user %d, who could modify the patched Go: %s", dir, owner, advice)
	case mode&fs.ModeSymlink != 0, above && mode&fs.ModeSticky != 0:
		return nil
	case mode.Perm()&0o002 != 0:
		return fmt.Errorf("%s is writable by every user (mode %o): %s, or chmod o-w", dir, mode.Perm(), advice)
	case mode.Perm()&0o020 != 0 && !private(group):
		return fmt.Errorf("%s is writable by group %d (mode %o): %s, or chmod g-w", dir, group, mode.Perm(), advice)
	}
	return nil
}

// private reports whether a group has only this user, as many systems make one for each, or root.
func private(group int) bool {
	return group == 0 || group == os.Getegid() && group == os.Geteuid()
}

// ownsAll reports whether the user owns the root directory: that is root, also where a user namespace
// has no number for root.
func ownsAll(user int) bool {
	info, err := os.Lstat("/")
	if err != nil {
		return false
	}
	owner, _ := ids(info)
	return owner == user
}

func ids(info fs.FileInfo) (owner, group int) {
	st := info.Sys().(*syscall.Stat_t)
	return int(st.Uid), int(st.Gid)
}
