package adopt

import (
	"bytes"
	"go/build/constraint"
	"path"
	"slices"
	"strings"
)

// hooked is the build constraint of the systems on which package net has hooks.
//
// GOOS=android has the tag linux too.
const hooked = "linux && !android && (amd64 || arm64)"

// refused is the build constraint of the other systems that resemble them. Package net does not
// compile there, because another build system that calls the go command gets no other error.
const refused = "linux && !android && !(amd64 || arm64)"

// Architectures are Linux's architectures for which there are hooks.
var Architectures = []string{"amd64", "arm64"}

var otherSystems = strings.Fields(`aix android darwin dragonfly freebsd hurd illumos ios js nacl
	netbsd openbsd plan9 solaris wasip1 windows zos`)

var otherArchitectures = strings.Fields(`386 arm armbe arm64be loong64 mips mipsle mips64 mips64le
	mips64p32 mips64p32le ppc ppc64 ppc64le riscv riscv64 s390 s390x sparc sparc64 wasm`)

// buildLine returns the //go:build line of a file and where it is; found is false if it
// has none.
func buildLine(text []byte) (expr constraint.Expr, start, end int, found bool) {
	for at := 0; at < len(text); {
		line := text[at:]
		if i := bytes.IndexByte(line, '\n'); i >= 0 {
			line = line[:i]
		}
		trimmed := bytes.TrimSpace(line)
		switch {
		case bytes.HasPrefix(trimmed, []byte("package ")):
			return nil, 0, 0, false
		case constraint.IsGoBuild(string(trimmed)):
			if x, err := constraint.Parse(string(trimmed)); err == nil {
				return x, at, at + len(line), true
			}
		}
		at += len(line) + 1
	}
	return nil, 0, 0, false
}

// nameTags returns the system and the architecture in the name of a file.
func nameTags(name string) []string {
	name = strings.TrimSuffix(path.Base(name), path.Ext(name))
	name = strings.TrimSuffix(name, "_test")
	parts := strings.Split(name, "_")
	if len(parts) == 1 {
		return nil
	}
	known := func(s string) bool {
		return s == "linux" || slices.Contains(Architectures, s) ||
			slices.Contains(otherSystems, s) || slices.Contains(otherArchitectures, s)
	}
	var tags []string
	for _, p := range slices.Backward(parts[1:]) {
		if !known(p) || len(tags) == 2 {
			break
		}
		tags = append(tags, p)
	}
	return tags
}

// mayBuild reports whether a file is built for Linux on one of the Architectures, whatever
// its other constraints are.
func mayBuild(name string, text []byte) bool {
	for _, tag := range nameTags(name) {
		if tag != "linux" && !slices.Contains(Architectures, tag) {
			return false
		}
	}
	expr, _, _, found := buildLine(text)
	if !found {
		return true
	}
	var open []string
	collect(expr, func(tag string) {
		switch {
		case tag == "linux", tag == "unix", tag == "gc", slices.Contains(otherSystems, tag), slices.Contains(otherArchitectures, tag):
		case slices.Contains(open, tag):
		default:
			open = append(open, tag)
		}
	})
	for set := range 1 << len(open) {
		if expr.Eval(func(tag string) bool {
			if i := slices.Index(open, tag); i >= 0 {
				return set&(1<<i) != 0
			}
			return tag == "linux" || tag == "unix" || tag == "gc"
		}) {
			return true
		}
	}
	return false
}

// collect calls f with every tag of an expression.
func collect(x constraint.Expr, f func(tag string)) {
	switch x := x.(type) {
	case *constraint.TagExpr:
		f(x.Tag)
	case *constraint.NotExpr:
		collect(x.X, f)
	case *constraint.AndExpr:
		collect(x.X, f)
		collect(x.Y, f)
	case *constraint.OrExpr:
		collect(x.X, f)
		collect(x.Y, f)
	}
}

// constrain returns a file with an additional condition in its build constraint.
func constrain(text []byte, condition string) []byte {
	expr, start, end, found := buildLine(text)
	if !found {
		return append([]byte("//go:build "+condition+"\n\n"), text...)
	}
	line := "//go:build (" + expr.String() + ") && " + condition
	return slices.Concat(text[:start], []byte(line), text[end:])
}
