package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// overlay is the content of the go command's -overlay: files that it replaces or adds.
type overlay struct {
	temp    string            // directory of the contents
	replace map[string]string // from file to content
}

// add makes the go command see a file with the given text.
func (o *overlay) add(name string, text []byte) error {
	content := filepath.Join(o.temp, strconv.Itoa(len(o.replace))+"_"+filepath.Base(name))
	o.replace[name] = content
	return os.WriteFile(content, text, 0o644)
}

// write writes the file for -overlay.
func (o *overlay) write(name string) error {
	text, err := json.Marshal(map[string]any{"Replace": o.replace})
	if err != nil {
		return err
	}
	return os.WriteFile(name, text, 0o644)
}

// pkg is the output of go list for a package.
type pkg struct {
	Dir, ImportPath, Name string
	TestGoFiles           []string // in the package
	XTestGoFiles          []string // in the external test package
	Module                *struct{ Main bool }
}

// packages returns the packages that the command names. It fails if one of them cannot be
// hooked. It leaves errors in the packages to the command.
func (s *swap) packages(ctx context.Context, c *command) ([]pkg, error) {
	args := append([]string{"list", "-e", "-json=Dir,ImportPath,Name,TestGoFiles,XTestGoFiles,Module"}, s.flags()...)
	args = append(append(args, c.tags()...), c.packages...)
	out, err := s.tool.output(ctx, args...)
	if err != nil {
		return nil, err
	}
	var packages []pkg
	for d := json.NewDecoder(bytes.NewReader(out)); d.More(); {
		var p pkg
		if err := d.Decode(&p); err != nil {
			return nil, err
		}
		if p.Dir != "" && (p.Module == nil || !p.Module.Main) {
			return nil, fmt.Errorf("%s is not in the module %s; use -module for other modules", p.ImportPath, s.mod.Path)
		}
		packages = append(packages, p)
	}
	return packages, nil
}

// overlayPackages makes the packages import package hook: in a test file if they are tested,
// otherwise in a file of package main.
func (s *swap) overlayPackages(ctx context.Context, c *command, packages []pkg) error {
	args := append([]string{"list", "-deps"}, s.flags()...)
	out, err := s.tool.output(ctx, append(args, hookPath)...)
	if err != nil {
		return err
	}
	below := strings.Fields(string(out))
	for _, p := range packages {
		tested := c.name == "test" || c.name == "vet"
		if name := p.tests(below); tested && name != "" {
			if err := s.files.add(filepath.Join(p.Dir, "zz_sdpswap_test.go"), imports(name)); err != nil {
				return err
			}
		}
		if p.Name == "main" && c.name != "test" {
			if err := s.files.add(filepath.Join(p.Dir, "zz_sdpswap.go"), imports("main")); err != nil {
				return err
			}
		}
	}
	return nil
}

// tests returns the package name for an additional test file of p, or "" if p has no tests. A
// package that package hook depends on cannot import hook, so the file is in its external test
// package.
func (p pkg) tests(below []string) string {
	switch {
	case len(p.TestGoFiles) > 0 && !slices.Contains(below, p.ImportPath):
		return p.Name
	case len(p.TestGoFiles)+len(p.XTestGoFiles) > 0:
		return p.Name + "_test"
	}
	return ""
}

// imports returns a file that imports package hook.
func imports(name string) []byte {
	return fmt.Appendf(nil, "package %s\n\nimport _ %q\n", name, hookPath)
}
