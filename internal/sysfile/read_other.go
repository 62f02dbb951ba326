//go:build !linux

package sysfile

import "os"

func read(name string) ([]byte, error) { return os.ReadFile(name) }

func pages(name string, take func([]byte)) error {
	text, err := read(name)
	take(text)
	return err
}
