package main

import (
	"context"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// hooks is the file that is added to package net.
const hooks = `package net

import "context"

// SwapDial and SwapListen, if not nil, replace Dialer.DialContext and
// ListenConfig.Listen on the networks tcp, tcp4 and tcp6.
var (
	SwapDial   func(context.Context, *Dialer, string, string) (Conn, error)
	SwapListen func(context.Context, *ListenConfig, string, string) (Listener, error)
)

type swapPlain struct{}

// SwapPlain returns a context for calls that must not be replaced.
func SwapPlain(ctx context.Context) context.Context {
	return context.WithValue(ctx, swapPlain{}, true)
}

func swaps(ctx context.Context, network string) bool {
	return (network == "tcp" || network == "tcp4" || network == "tcp6") &&
		ctx != nil && ctx.Value(swapPlain{}) == nil
}
`

// method is a method of package net that gets a prologue. Its parameters must be
// (context.Context, string, string).
type method struct {
	receiver, name string
	result         string // the first result; the second is an error
	hook           string // the variable that replaces it
}

var methods = []method{
	{"Dialer", "DialContext", "Conn", "SwapDial"},
	{"ListenConfig", "Listen", "Listener", "SwapListen"},
}

// overlayNet overlays the files of package net in the Go installation.
func (s *swap) overlayNet(ctx context.Context) error {
	env, err := s.tool.variables(ctx, "GOROOT", "GOVERSION", "GOMODCACHE")
	if err != nil {
		return err
	}
	if inside(env["GOROOT"], env["GOMODCACHE"]) {
		return fmt.Errorf("%s is in the module cache, where the go command permits no overlay; install %[1]s outside it", env["GOVERSION"])
	}
	dir := filepath.Join(env["GOROOT"], "src", "net")
	name := filepath.Join(dir, "dial.go")
	text, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	if text, err = patch(text, env["GOVERSION"]); err != nil {
		return err
	}
	if err := s.files.add(name, text); err != nil {
		return err
	}
	return s.files.add(filepath.Join(dir, "zz_sdpswap.go"), []byte(hooks))
}

// patch returns package net's dial.go with a prologue in each method. Line numbers do not
// change.
func patch(text []byte, goVersion string) ([]byte, error) {
	file, err := parser.ParseFile(token.NewFileSet(), "dial.go", text, parser.SkipObjectResolution)
	if err != nil {
		return nil, fmt.Errorf("%s: net/dial.go: %w", goVersion, err)
	}
	for _, m := range slices.Backward(methods) { // backward, so that positions remain valid
		f := m.find(file)
		if f == nil {
			return nil, fmt.Errorf("%s: net/dial.go has no (*%s).%s", goVersion, m.receiver, m.name)
		}
		names, ok := m.names(f)
		if !ok {
			return nil, fmt.Errorf("%s: net/dial.go: (*%s).%s is not a method with the parameters (context.Context, string, string), all with names, and the results (%s, error)",
				goVersion, m.receiver, m.name, m.result)
		}
		d, ctx, network, address := names[0], names[1], names[2], names[3]
		prologue := fmt.Sprintf(" if %s != nil && swaps(%s, %s) { return %[1]s(%[2]s, %[4]s, %[3]s, %[5]s) };", m.hook, ctx, network, d, address)
		text = slices.Insert(text, int(f.Body.Lbrace-file.FileStart)+1, []byte(prologue)...)
	}
	return text, nil
}

// find returns the method's declaration, or nil.
func (m method) find(file *ast.File) *ast.FuncDecl {
	for _, d := range file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || f.Name.Name != m.name || f.Recv == nil || len(f.Recv.List) != 1 || f.Body == nil {
			continue
		}
		if typeName(f.Recv.List[0].Type) == "*"+m.receiver {
			return f
		}
	}
	return nil
}

// names returns the names of the receiver and the parameters. It returns false if the method
// does not have the expected types.
func (m method) names(f *ast.FuncDecl) ([]string, bool) {
	names, types := flatten(f.Recv)
	for _, list := range []*ast.FieldList{f.Type.Params, f.Type.Results} {
		n, t := flatten(list)
		names, types = append(names, n...), append(types, t...)
	}
	want := []string{"*" + m.receiver, "context.Context", "string", "string", m.result, "error"}
	if !slices.Equal(types, want) || slices.Contains(names[:4], "") || slices.Contains(names[:4], "_") {
		return nil, false
	}
	return names[:4], true
}

// flatten returns a name and a type for each field. The name is "" if the field has none.
func flatten(list *ast.FieldList) (names, types []string) {
	if list == nil {
		return nil, nil
	}
	for _, field := range list.List {
		if len(field.Names) == 0 {
			names, types = append(names, ""), append(types, typeName(field.Type))
		}
		for _, name := range field.Names {
			names, types = append(names, name.Name), append(types, typeName(field.Type))
		}
	}
	return names, types
}

// typeName returns the text of a simple type, and "" for other types.
func typeName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.StarExpr:
		return "*" + typeName(e.X)
	case *ast.SelectorExpr:
		return strings.Join([]string{typeName(e.X), e.Sel.Name}, ".")
	}
	return ""
}
