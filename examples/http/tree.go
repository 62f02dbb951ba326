package main

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// A file is a file with the content that a fetch must return.
type file struct {
	name    string // relative to the tree's root, with slashes
	content []byte
}

// goSource returns the directory of the Go installation's source.
func goSource() (string, error) {
	out, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return "", fmt.Errorf("cannot find the Go installation; give a tree with -dir: %w", err)
	}
	return filepath.Join(strings.TrimSpace(string(out)), "src"), nil
}

// readTree reads every regular file below dir into memory, so that the measured times
// do not depend on the disk.
func readTree(dir string) ([]file, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("cannot open the tree to serve; give one with -dir: %w", err)
	}
	defer root.Close()
	var files []file
	err = fs.WalkDir(root.FS(), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		content, err := root.ReadFile(name)
		files = append(files, file{name, content})
		return err
	})
	if err == nil && len(files) == 0 {
		err = fmt.Errorf("no files in %s", dir)
	}
	return files, err
}
