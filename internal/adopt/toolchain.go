package adopt

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/version"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// Versions are the supported versions of Go: the two that the Go project supports, and the next.
var Versions = []string{"go1.25", "go1.26", "go1.27"}

// Toolchain describes the go command that is used in a directory and an environment.
type Toolchain struct {
	GOROOT     string
	GOVERSION  string // "go1.26.8", "go1.26.1 (Red Hat 1.26.1-2)": see release
	GOOS       string // that it builds for
	GOARCH     string
	GOHOSTOS   string
	GOHOSTARCH string
	CGOEnabled string `json:"CGO_ENABLED"`
	// GOTOOLCHAIN says whether the go command may change to another version.
	GOTOOLCHAIN string
	GOFLAGS     string
}

// Ask returns the toolchain that the go command would use in dir, or in the current directory if dir
// is "". In a module that is the version that go.mod asks for. env is the environment; nil means
// that of this process.
func Ask(ctx context.Context, goCommand, dir string, env []string) (*Toolchain, error) {
	cmd := exec.CommandContext(ctx, goCommand, "env", "-json", "GOROOT", "GOVERSION", "GOOS", "GOARCH", "GOHOSTOS", "GOHOSTARCH", "CGO_ENABLED", "GOTOOLCHAIN", "GOFLAGS")
	cmd.Dir, cmd.Env = dir, env
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		if text := strings.TrimSpace(stderr.String()); text != "" {
			return nil, errors.New(text)
		}
		return nil, fmt.Errorf("%s env: %w", goCommand, err)
	}
	t := new(Toolchain)
	if err := json.Unmarshal(out, t); err != nil {
		return nil, fmt.Errorf("%s env: %w", goCommand, err)
	}
	return t, nil
}

// First returns the GOROOT of the installation. Inside "sdp env" that is not the toolchain's own.
func (t *Toolchain) First() string {
	if first, err := os.ReadFile(filepath.Join(t.GOROOT, usedFile)); err == nil {
		return strings.TrimSpace(string(first))
	}
	return t.GOROOT
}

// Hooked reports whether programs for the target use SDP. Other programs are built unchanged.
func (t *Toolchain) Hooked() bool {
	return t.GOOS == "linux" && slices.Contains(Architectures, t.GOARCH)
}

// Change returns the GOTOOLCHAIN with which the go command changes to the toolchain that a package needs, "" if
// GOTOOLCHAIN does not let it change.
func (t *Toolchain) Change(needs string) string {
	_, mode, found := strings.Cut(t.GOTOOLCHAIN, "+")
	if !found {
		mode = t.GOTOOLCHAIN
	}
	switch mode {
	case "auto":
		return needs
	case "path": // download nothing
		return needs + "+path"
	}
	return ""
}

// supported returns nil if the version of Go is supported, and otherwise why it is not.
func (t *Toolchain) supported() error {
	if slices.Contains(Versions, version.Lang(release(t.GOVERSION))) {
		return nil
	}
	hint := fmt.Sprintf("use one of %s to %s, for example with GOTOOLCHAIN=%s.0", Versions[0], Versions[len(Versions)-1], Versions[1])
	return fmt.Errorf("%s (%s) is not supported: %s", t.GOVERSION, t.GOROOT, hint)
}

// release returns the release in a version of Go, without what distributions, experiments and
// development versions add: "go1.26.1" for "go1.26.1 (Red Hat 1.26.1-2)" and for "go1.26.1-X:jsonv2",
// "go1.27" for "go1.27-devel_0123abcd Tue Nov 3" and for "devel go1.27-0123abcd". A release may be part
// of a file's name, also in PATH.
func release(version string) string {
	version = strings.TrimPrefix(version, "devel ")
	end := strings.IndexFunc(version, func(r rune) bool {
		return (r < 'a' || 'z' < r) && (r < '0' || '9' < r) && r != '.'
	})
	if end >= 0 {
		version = version[:end]
	}
	return version
}

// Environ returns an environment in which the go command is that of the second GOROOT.
func Environ(env []string, goroot string) []string {
	env = slices.DeleteFunc(slices.Clone(env), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return name == "GOROOT" || name == "GOTOOLCHAIN" || name == "PATH"
	})
	for _, v := range Variables(goroot) {
		env = append(env, v[0]+"="+v[1])
	}
	return env
}

// Variables returns the names and values that other build systems need.
func Variables(goroot string) [][2]string {
	path := filepath.Join(goroot, "bin")
	if more := os.Getenv("PATH"); more != "" { // an empty entry would be the current directory
		path += string(os.PathListSeparator) + more
	}
	return [][2]string{{"GOROOT", goroot}, {"GOTOOLCHAIN", "local"}, {"PATH", path}}
}
