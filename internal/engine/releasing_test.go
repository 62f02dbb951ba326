package engine

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestNamesSayWhatReleasesMu: of the functions that are called with Conn.mu held, exactly those
// whose names end in Releasing release it, directly or through what they call, and return with it
// held. Those that end in Locked do not.
func TestNamesSayWhatReleasesMu(t *testing.T) {
	funcs := engineFuncs(t)
	releases := make(map[*ast.FuncDecl]bool)
	for again := true; again; {
		again = false
		for _, f := range funcs {
			if !releases[f] && releasesMu(f, funcs, releases) {
				releases[f], again = true, true
			}
		}
	}
	locked, releasing := 0, 0
	for _, f := range funcs {
		name := f.Name.Name
		switch {
		case strings.HasSuffix(name, "Locked"):
			locked++
			assert.False(t, releases[f], "%s releases mu", name)
		case strings.HasSuffix(name, "Releasing"):
			releasing++
			assert.True(t, releases[f], "%s does not release mu", name)
		case strings.HasSuffix(name, "AndUnlock"):
		default:
			assert.False(t, releases[f], "%s releases mu, which its caller has taken", name)
		}
	}
	assert.Greater(t, locked, 20)
	assert.Greater(t, releasing, 20)
}

// engineFuncs returns the functions of this package, by their files.
func engineFuncs(t *testing.T) (funcs []*ast.FuncDecl) {
	t.Helper()
	entries, err := os.ReadDir(".")
	require.NoError(t, err)
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".go") || strings.HasSuffix(e.Name(), "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), e.Name(), nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Body != nil {
				funcs = append(funcs, f)
			}
		}
	}
	return funcs
}

// releasesMu reports whether f releases a Conn.mu that it has not taken: by Unlock, by waiting on
// the connection's condition, or by calling a function with one of the suffixes that does. What
// closures do does not count, because other goroutines run them.
func releasesMu(f *ast.FuncDecl, funcs []*ast.FuncDecl, releases map[*ast.FuncDecl]bool) (does bool) {
	taken := false
	ast.Inspect(f.Body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			return false
		case *ast.CallExpr:
			call, ok := n.Fun.(*ast.SelectorExpr)
			if !ok {
				break
			}
			what, name := text(call.X), call.Sel.Name
			switch mu := what == "c.mu" || strings.HasSuffix(what, "conn.mu"); {
			case mu && name == "Lock":
				taken = true
			case mu && name == "Unlock", what == "p.cond" && name == "Wait":
				does = does || !taken
			case strings.HasSuffix(name, "Locked"), strings.HasSuffix(name, "Releasing"), strings.HasSuffix(name, "AndUnlock"):
				for _, g := range funcs {
					does = does || !taken && g.Name.Name == name && releases[g]
				}
			}
		}
		return true
	})
	return does
}

// text returns an expression of names and dots as it is written.
func text(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return text(e.X) + "." + e.Sel.Name
	}
	return "?"
}
