package gosdp_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestSkipsNameWhatIsMissing: a test that is skipped says what to install, set or become in order to
// run it, in the same form everywhere.
func TestSkipsNameWhatIsMissing(t *testing.T) {
	files := token.NewFileSet()
	checked := 0
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != "." && strings.HasPrefix(d.Name(), "."):
			return filepath.SkipDir
		case d.IsDir() || filepath.Ext(path) != ".go":
			return nil
		}
		file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			if f, ok := call.Fun.(*ast.SelectorExpr); ok && (f.Sel.Name == "Skip" || f.Sel.Name == "Skipf" || f.Sel.Name == "SkipNow") {
				checked++
				assert.True(t, saysMissing(call.Args), "%v: the message must begin with \"missing: \"", files.Position(call.Pos()))
			}
			return true
		})
		return nil
	})
	require.NoError(t, err)
	assert.Greater(t, checked, 100)
}

// saysMissing reports whether the arguments of a call of Skip begin with the text "missing: ".
func saysMissing(args []ast.Expr) bool {
	if len(args) == 0 {
		return false
	}
	first := args[0]
	for {
		sum, ok := first.(*ast.BinaryExpr)
		if !ok {
			break
		}
		first = sum.X
	}
	text, ok := first.(*ast.BasicLit)
	return ok && strings.HasPrefix(text.Value, `"missing: `)
}
