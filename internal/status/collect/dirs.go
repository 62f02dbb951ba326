package collect

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/gosdp/gosdp/internal/status"
)

const (
	// maxNames is how many names Dirs reads in a directory, and maxDirs how many it returns.
	maxNames = 100_000
	maxDirs  = 1024
)

// Dirs returns the directories that the programs of all users may have made, and why there may be
// more. It only reads names: a user can have everything hang that looks at a directory of theirs.
func Dirs() (dirs []string, failures []Failure) { return dirsBelow("/run/user", "/tmp") }

func dirsBelow(run, temp string) (dirs []string, failures []Failure) {
	add := func(parent string, dirOf func(name string) string) {
		names, err := namesIn(parent)
		for _, name := range names {
			dir := dirOf(name)
			if _, ok := namedAfter(dir); !ok {
				continue
			}
			if len(dirs) == maxDirs {
				err = fmt.Errorf("more than %d directories of users", maxDirs)
				break
			}
			dirs = append(dirs, filepath.Join(parent, dir))
		}
		if err != nil {
			failures = append(failures, Failure{parent, err})
		}
	}
	add(run, func(name string) string { return filepath.Join(name, status.DirName+name) })
	add(temp, func(name string) string { return name })
	return dirs, failures
}

// namesIn returns the names in a directory, if there is one.
func namesIn(path string) ([]string, error) {
	d, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer d.Close()
	names, err := d.Readdirnames(maxNames)
	if err == io.EOF {
		return nil, nil
	}
	if len(names) == maxNames {
		err = fmt.Errorf("more than %d files", maxNames)
	}
	return names, err
}

// namedAfter returns the user after whom a directory is named as status.Dir does.
func namedAfter(path string) (uid int, ok bool) {
	number, ok := strings.CutPrefix(filepath.Base(path), status.DirName)
	uid, err := strconv.Atoi(number)
	return uid, ok && err == nil && strconv.Itoa(uid) == number
}
