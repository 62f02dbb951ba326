//go:build unix

package collect

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/gosdp/gosdp/internal/status"
)

// openDirectory opens the directory before it checks it, so that nothing can take its place in
// between. The flags make it fail at once if the path is a FIFO, a device or a link.
func openDirectory(path string) (*directory, error) {
	f, err := os.OpenFile(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, err
	}
	owner, _ := status.Owner(info)
	if err := status.PrivateInfo(path, info, owner); err != nil {
		f.Close()
		return nil, err
	}
	// Of directories that are named after others one user could make any number, each with its limits.
	if uid, ok := namedAfter(path); ok && uid != owner {
		f.Close()
		return nil, fmt.Errorf("%s is owned by user %d", path, owner)
	}
	return &directory{f, path, owner}, nil
}

// remove removes a socket.
func (d *directory) remove(name string) error {
	if err := unix.Unlinkat(int(d.Fd()), name, 0); err != nil {
		return &os.PathError{Op: "remove", Path: name, Err: err}
	}
	return nil
}
