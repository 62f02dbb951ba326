package gosdp_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestFuzzers: every fuzzer's target begins with a watchdog, without which one that hangs
// passes, and docs/testing.md says what the fuzzer checks.
func TestFuzzers(t *testing.T) {
	page, err := os.ReadFile("docs/testing.md")
	require.NoError(t, err)
	files := token.NewFileSet()
	checked := 0
	err = filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				if strings.HasPrefix(n.Name.Name, "Fuzz") {
					assert.Contains(t, string(page), "`"+n.Name.Name+"`")
				}
			case *ast.CallExpr:
				if f, ok := n.Fun.(*ast.SelectorExpr); ok && f.Sel.Name == "Fuzz" {
					checked++
					assert.True(t, hasWatchdog(n), "%v: want \"defer watchdog.Start()()\" first", files.Position(n.Pos()))
				}
			}
			return true
		})
		return nil
	})
	require.NoError(t, err)
	assert.Greater(t, checked, 15)
}

// hasWatchdog reports whether the target that a call of f.Fuzz is given defers
// watchdog.Start()() before all else.
func hasWatchdog(fuzz *ast.CallExpr) bool {
	target, ok := fuzz.Args[0].(*ast.FuncLit)
	if !ok {
		return false
	}
	first, ok := target.Body.List[0].(*ast.DeferStmt)
	if !ok {
		return false
	}
	start, ok := first.Call.Fun.(*ast.CallExpr)
	if !ok {
		return false
	}
	f, ok := start.Fun.(*ast.SelectorExpr)
	return ok && f.Sel.Name == "Start" && ast.Unparen(f.X).(*ast.Ident).Name == "watchdog"
}
