package adopt

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"slices"
)

// vendored is where a GOROOT has the copy of golang.org/x/sys/unix that the go command uses.
const vendored = "src/cmd/vendor/golang.org/x/sys/unix"

// unixEdits make package unix smaller: a function of _std/unix replaces anyToSockaddr, and no call of
// errnoErr is inlined.
var unixEdits = []edit{
	{at: "\nfunc anyToSockaddr(", instead: "\nfunc anyToSockaddrOfLinux("},
	{at: "\nfunc errnoErr(", instead: "\n//go:noinline\nfunc errnoErr("},
}

// lateConstants are the constants that the library uses and that the oldest supported version of Go does
// not declare, with their values on all Architectures.
var lateConstants = map[string]string{
	"SO_PASSRIGHTS": "0x53", // since Go 1.26
}

// writeUnix writes package unix: the files of from that Linux needs, with the changes. of names the
// package in errors.
func writeUnix(to, from, of string) error {
	if err := writeDir(to, std, "_std/unix"); err != nil {
		return err
	}
	entries, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	sources := make(files)
	for _, e := range entries {
		if ext := filepath.Ext(e.Name()); ext != ".go" && ext != ".s" {
			continue
		}
		if err := sources.add(from, e.Name()); err != nil {
			return err
		}
	}
	if _, err := sources.apply(of, unixEdits); err != nil {
		return err
	}
	for name, text := range sources {
		if err := os.WriteFile(filepath.Join(to, name), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// unixNames are the names of package unix that the library uses, each with a file that uses it.
type unixNames map[string]string

// add adds the names that a source of the library uses. All of them import the package as unix.
func (u unixNames) add(file string, text []byte) error {
	if !bytes.Contains(text, []byte(`"golang.org/x/sys/unix"`)) {
		return nil
	}
	f, err := parser.ParseFile(token.NewFileSet(), file, text, 0)
	if err != nil {
		return err
	}
	ast.Inspect(f, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok {
			if x, ok := s.X.(*ast.Ident); ok && x.Name == "unix" && x.Obj == nil {
				u[s.Sel.Name] = file
			}
		}
		return true
	})
	return nil
}

// complete adds the lateConstants that the package in dir lacks. It returns an error if the package does not
// declare another one of the names: the compiler would report that for every program.
func (u unixNames) complete(dir, of string) error {
	sources := make(files)
	if err := sources.read(dir); err != nil {
		return err
	}
	declared := make(map[string]bool)
	for name, text := range sources {
		f, err := parser.ParseFile(token.NewFileSet(), name, text, parser.SkipObjectResolution)
		if err != nil {
			return fmt.Errorf("%s: %w", of, err)
		}
		for _, d := range f.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Recv == nil {
					declared[d.Name.Name] = true
				}
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					switch spec := spec.(type) {
					case *ast.TypeSpec:
						declared[spec.Name.Name] = true
					case *ast.ValueSpec:
						for _, n := range spec.Names {
							declared[n.Name] = true
						}
					}
				}
			}
		}
	}
	late := "package unix\n"
	for _, name := range slices.Sorted(maps.Keys(u)) {
		switch value := lateConstants[name]; {
		case declared[name]:
		case value != "":
			late += "\nconst " + name + " = " + value + "\n"
		default:
			return fmt.Errorf("%s has no %s, which %s uses", of, name, u[name])
		}
	}
	return os.WriteFile(filepath.Join(dir, "sdp_late.go"), []byte(late), 0o644)
}
