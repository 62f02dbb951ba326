//go:build unix

package rules

import (
	"errors"
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// nonblocking lets a FIFO be opened that no program writes to.
const nonblocking = unix.O_NONBLOCK

// noFollow makes opening a symbolic link an error.
const noFollow = unix.O_NOFOLLOW

// owned returns nil if only this user and root can have written the file.
func owned(f *os.File) error {
	var st unix.Stat_t
	switch err := unix.Fstat(int(f.Fd()), &st); {
	case err != nil:
		return err
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		return errors.New("not a regular file")
	case int(st.Uid) != os.Geteuid():
		return errors.New("owned by another user")
	case st.Mode&0o022 != 0:
		return errors.New("writable by other users")
	case st.Nlink != 1:
		return errors.New("has more than one hard link")
	}
	return nil
}

// sendSyslog sends a message to the system's log. It does not wait.
func sendSyslog(message string) error {
	path := "/dev/log"
	if runtime.GOOS == "darwin" {
		path = "/var/run/syslog"
	}
	syscall.ForkLock.RLock() // a process that is started meanwhile must not inherit the socket
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM, 0)
	if err == nil {
		unix.CloseOnExec(fd)
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.SetNonblock(fd, true); err != nil {
		return err
	}
	if err := unix.Sendto(fd, []byte(message), 0, &unix.SockaddrUnix{Name: path}); err != nil {
		return &os.PathError{Op: "send", Path: path, Err: err}
	}
	return nil
}
