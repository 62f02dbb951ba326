//go:build !unix

package collect

import (
	"errors"
	"os"
)

// openDirectory always fails, because the system does not say to whom a directory belongs.
func openDirectory(path string) (*directory, error) {
	if _, err := os.Lstat(path); err != nil {
		return nil, err
	}
	return nil, errors.ErrUnsupported
}

func (d *directory) find(string) (string, func(), error) { return "", nil, errors.ErrUnsupported }
func (d *directory) remove(string) error                 { return errors.ErrUnsupported }
