package collect

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"
)

// A directory holds the sockets of one user's programs. Its user may rename it and put something
// else in its place at any time. So everything is looked up, and removed, in the directory that
// was checked, and not in what has its name now.
type directory struct {
	*os.File
	path  string
	owner int
}

var errNoSocket = errors.New("not a socket")

var errHung = errors.New("directory access timed out")

// open opens a directory in which only one user can have made sockets. Tests replace it.
var open = openDirectory

// list returns the names in a directory, and an error if there are more than maxSockets.
func (d *directory) list() ([]string, error) {
	names, err := d.Readdirnames(maxSockets + 1)
	switch {
	case err != nil && err != io.EOF:
		return nil, err
	case len(names) > maxSockets:
		return names[:maxSockets], fmt.Errorf("more than %d sockets", maxSockets)
	}
	return names, nil
}

// Usable returns an error if Collect looks for no sockets in a directory, within Patience.
func Usable(path string) error {
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	failed := make(chan error, 1)
	go func() {
		failed <- enter(ctx, path, func(d *directory) error {
			_, err := d.list()
			return err
		})
	}()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
		return fmt.Errorf("%s: %w", path, errHung)
	}
}

// turns has a channel for each path, which holds an element while the directory is in use.
var turns sync.Map

// enter opens a directory and passes it to use. The user of the directory can make that hang, with
// a file system of their own. So callers run enter in a goroutine and do not wait for it, and enter
// lets only one goroutine at a time use the path. The others return when ctx ends.
func enter(ctx context.Context, path string, use func(*directory) error) error {
	value, _ := turns.LoadOrStore(path, make(chan struct{}, 1))
	turn := value.(chan struct{})
	select {
	case turn <- struct{}{}:
	case <-ctx.Done():
		return errHung
	}
	defer func() { <-turn }()
	d, err := open(path)
	if errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.ELOOP) { // a link
		return fmt.Errorf("%s is not a directory", path)
	}
	if err != nil {
		return err
	}
	defer d.Close()
	return use(d)
}
