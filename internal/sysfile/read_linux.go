package sysfile

import (
	"os"

	"golang.org/x/sys/unix"
)

func read(name string) ([]byte, error) {
	text := make([]byte, 0, 512)
	err := pages(name, func(page []byte) { text = append(text, page...) })
	return text, err
}

// pages calls take with one part of a file after the other. The kernel generates the text
// on reading, at most one page at a time.
func pages(name string, take func([]byte)) error {
	fd, err := ignoringEINTR(func() (int, error) { return unix.Open(name, unix.O_RDONLY|unix.O_CLOEXEC, 0) })
	if err != nil {
		return &os.PathError{Op: "open", Path: name, Err: err}
	}
	defer unix.Close(fd)
	page := make([]byte, 4<<10)
	for {
		n, err := ignoringEINTR(func() (int, error) { return unix.Read(fd, page) })
		if err != nil {
			return &os.PathError{Op: "read", Path: name, Err: err}
		}
		if n <= 0 {
			return nil
		}
		take(page[:n])
	}
}

func ignoringEINTR(call func() (int, error)) (n int, err error) {
	for {
		if n, err = call(); err != unix.EINTR {
			return n, err
		}
	}
}
