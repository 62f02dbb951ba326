package adopt

import (
	"embed"
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/gosdp/gosdp"
)

//go:embed all:_std
var std embed.FS

const (
	module = "github.com/gosdp/gosdp/"
	inside = "internal/gosdp/" // where the library is in the standard library
)

// replaced maps packages of the standard library, and of other modules, to those that the library
// imports there instead.
var replaced = map[string]string{
	"crypto/hmac":           inside + "hmac",
	"crypto/rand":           inside + "rand",
	"crypto/sha256":         inside + "sha256",
	"errors":                inside + "errors",
	"golang.org/x/sys/unix": inside + "unix",
	"log/slog":              inside + "slog",
	"net":                   inside + "net",
}

// light are small packages that replace some of the standard library, which would make every
// program larger by code that the library does not use. Package net would be an import cycle too.
var light = []string{"errors", "hmac", "net", "rand", "sha256", "slog"}

// importPath returns the package that a package inside the standard library imports instead of p.
func importPath(p string) string {
	if r, ok := replaced[p]; ok {
		return r
	}
	if ours, ok := strings.CutPrefix(p, module); ok {
		return inside + place(ours)
	}
	return p
}

// place returns where a package of this module is in src/internal/gosdp. Programs contain the name of
// each function, so short import paths make them smaller.
func place(pkg string) string {
	return strings.TrimPrefix(strings.ReplaceAll(pkg, "/internal/", "/"), "internal/")
}

// rewriteImports returns a file with its imports replaced for a package inside the standard
// library, and its original imports.
func rewriteImports(name string, text []byte) ([]byte, []string, error) {
	f, err := parser.ParseFile(token.NewFileSet(), name, text, parser.ImportsOnly)
	if err != nil {
		return nil, nil, err
	}
	var had []string
	for _, spec := range slices.Backward(f.Imports) {
		p, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return nil, nil, err
		}
		had = append(had, p)
		if r := importPath(p); r != p {
			start, end := int(spec.Path.Pos()-f.FileStart), int(spec.Path.End()-f.FileStart)
			text = slices.Concat(text[:start], []byte(strconv.Quote(r)), text[end:])
		}
	}
	return text, had, nil
}

// writeLibrary writes the library to src/internal/gosdp of a GOROOT, which must not exist: the packages
// of this module that the roots need. version is that of Go, for errors.
func writeLibrary(goroot, version string, roots []string) error {
	src, of := filepath.Join(goroot, "src"), "golang.org/x/sys/unix of "+version
	unix := filepath.Join(src, inside, "unix")
	if err := writeUnix(unix, filepath.Join(goroot, vendored), of); err != nil {
		return err
	}
	used := make(unixNames)
	for _, pkg := range light {
		if err := writeDir(filepath.Join(src, inside, pkg), std, lightDir(pkg)); err != nil {
			return err
		}
	}
	queue := slices.Clone(roots)
	seen := make(map[string]bool)
	for len(queue) > 0 {
		pkg := queue[0]
		queue = queue[1:]
		if seen[pkg] {
			continue
		}
		seen[pkg] = true
		imports, err := writePackage(src, pkg, used)
		if err != nil {
			return err
		}
		queue = append(queue, imports...)
	}
	return used.complete(unix, of)
}

// lightDir returns the directory of a light package. The files for package net itself are in
// _std/net.
func lightDir(pkg string) string {
	if pkg == "net" {
		pkg = "inner"
	}
	return "_std/" + pkg
}

// writePackage writes a package of this module, and returns those that it imports. It adds the names of
// package unix that the package uses to used.
func writePackage(src, pkg string, used unixNames) (imports []string, err error) {
	to := filepath.Join(src, inside, filepath.FromSlash(place(pkg)))
	if err := os.MkdirAll(to, 0o755); err != nil {
		return nil, err
	}
	write := func(from fs.FS, dir string) error {
		entries, err := fs.ReadDir(from, dir)
		if err != nil {
			return err
		}
		for _, e := range entries {
			name := e.Name()
			if e.IsDir() || !slices.Contains([]string{".go", ".s", ".c", ".h"}, path.Ext(name)) || strings.HasSuffix(name, "_test.go") {
				continue
			}
			text, err := fs.ReadFile(from, path.Join(dir, name))
			if err != nil {
				return err
			}
			if !mayBuild(name, text) {
				continue
			}
			if path.Ext(name) == ".go" {
				if err := used.add(path.Join(dir, name), text); err != nil {
					return err
				}
				var had []string
				if text, had, err = rewriteImports(name, text); err != nil {
					return err
				}
				for _, p := range had {
					if ours, ok := strings.CutPrefix(p, module); ok {
						imports = append(imports, ours)
					}
				}
			}
			if err := os.WriteFile(filepath.Join(to, name), text, 0o644); err != nil {
				return err
			}
		}
		return nil
	}
	if err := write(gosdp.Sources, pkg); err != nil {
		return nil, fmt.Errorf("package %s: %w", pkg, err)
	}
	switch pkg {
	case "sdp", "internal/engine", "internal/stream":
		if err := write(std, path.Join("_std", path.Base(pkg))); err != nil {
			return nil, err
		}
	}
	return imports, nil
}

// writeDir writes the files of a directory.
func writeDir(to string, from embed.FS, dir string) error {
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	entries, err := from.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		text, err := from.ReadFile(dir + "/" + e.Name())
		if err == nil {
			err = os.WriteFile(filepath.Join(to, e.Name()), text, 0o644)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
