package collect

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// find returns a path that leads to the socket of that name, and to nothing else, until release is
// called: its directory may be replaced at any time. It follows no link.
func (d *directory) find(name string) (path string, release func(), err error) {
	fd, err := unix.Openat(int(d.Fd()), name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", nil, &os.PathError{Op: "open", Path: name, Err: err}
	}
	var st unix.Stat_t
	err = os.NewSyscallError("fstat", unix.Fstat(fd, &st))
	if err == nil && st.Mode&unix.S_IFMT != unix.S_IFSOCK {
		err = errNoSocket
	}
	if err != nil {
		unix.Close(fd)
		return "", nil, err
	}
	return fmt.Sprintf("/proc/self/fd/%d", fd), func() { unix.Close(fd) }, nil
}
