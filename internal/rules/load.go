package rules

import (
	"errors"
	"fmt"
	"io"
	"os"
)

// maxSize limits the size of a file. That of libsdp has 6 KB.
const maxSize = 1 << 20

// Load reads and parses a file. It does not block on a FIFO or a device: only regular files are
// read. Every error has type Errors.
func Load(name string) (*Set, error) {
	text, err := read(name)
	if err != nil {
		var path *os.PathError
		if errors.As(err, &path) {
			err = path.Err // without the name, which the Error has
		}
		return nil, Errors{{name, 0, err.Error()}}
	}
	return Parse(name, text)
}

func read(name string) (string, error) {
	// Opening a device can have an effect, so what the name stands for is checked before and after.
	info, err := os.Stat(name)
	if err == nil {
		err = readable(info)
	}
	if err != nil {
		return "", err
	}
	f, err := os.OpenFile(name, os.O_RDONLY|nonblocking, 0)
	if err != nil {
		return "", err
	}
	defer f.Close()
	if info, err = f.Stat(); err == nil {
		err = readable(info)
	}
	if err != nil {
		return "", err
	}
	text, err := io.ReadAll(io.LimitReader(f, maxSize+1))
	if err == nil && len(text) > maxSize {
		err = errTooLarge
	}
	return string(text), err
}

var errTooLarge = fmt.Errorf("file exceeds %d MB", maxSize>>20)

// readable returns nil if a file may be read.
func readable(info os.FileInfo) error {
	switch {
	case info.IsDir():
		return errors.New("is a directory")
	case !info.Mode().IsRegular():
		return errors.New("not a regular file")
	case info.Size() > maxSize:
		return errTooLarge
	}
	return nil
}
