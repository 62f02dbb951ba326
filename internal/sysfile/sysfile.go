// Package sysfile reads the small files in which Linux tells of a process and its machine,
// such as those below /proc and /sys. They are read when the first connection is set up, so
// they are read with as few system calls as can be: os.ReadFile makes three times as many.
package sysfile

import (
	"bytes"
	"strings"
)

// Read returns the text of a file without the white space around it. Safe for concurrent
// use.
func Read(name string) (string, error) {
	text, err := read(name)
	return strings.TrimSpace(string(text)), err
}

// Lines counts the lines of a file, which may be long. Safe for concurrent use.
func Lines(name string) (n int, err error) {
	err = pages(name, func(page []byte) { n += bytes.Count(page, []byte{'\n'}) })
	return n, err
}
