package adopt

import (
	"bytes"
	"fmt"
	"go/format"
	"maps"
	"slices"
	"strings"
)

// files are the sources of a package, by name.
type files map[string][]byte

// apply makes the edits, and returns the names of the changed files. of is the name of the package
// in errors.
func (fs files) apply(of string, edits []edit) ([]string, error) {
	changed := make(map[string]bool)
	for _, e := range edits {
		name, err := fs.find(of, e)
		if err != nil {
			return nil, err
		}
		instead := e.instead
		if e.prologue != "" {
			instead = e.at + " " + e.prologue
			if strings.HasPrefix(e.at, "func ") {
				instead += ";"
			}
		}
		fs[name] = bytes.Replace(fs[name], []byte(e.at), []byte(instead), 1)
		changed[name] = true
	}
	for name := range changed {
		if _, err := format.Source(fs[name]); err != nil {
			return nil, fmt.Errorf("%s: %s does not parse after the change: %w", of, name, err)
		}
	}
	return slices.Sorted(maps.Keys(changed)), nil
}

// find returns the file with the place that an edit changes.
func (fs files) find(of string, e edit) (string, error) {
	at := e.at
	if e.prologue != "" {
		at = "\n" + at + "\n"
	}
	found, n := "", 0
	for name, text := range fs {
		if k := bytes.Count(text, []byte(at)); k > 0 {
			found = name
			n += k
		}
	}
	switch n {
	case 1:
		return found, nil
	case 0:
		return "", fmt.Errorf("%s has no %q", of, strings.TrimSpace(strings.TrimSuffix(e.at, " {")))
	}
	return "", fmt.Errorf("%s has %q %d times", of, strings.TrimSpace(strings.TrimSuffix(e.at, " {")), n)
}
