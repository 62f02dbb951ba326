package adopt

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/gosdp/gosdp"
)

// Options are the options of a second GOROOT.
type Options struct {
	// Cache is the directory of all second GOROOTs; "" means gosdp/go in the user's cache
	// directory.
	Cache string
	// RDMA adds SDP over RDMA, and its device iwarp.
	RDMA bool
	// Verbs adds RDMA too, and the device for RDMA hardware, which needs cgo.
	Verbs bool
}

// parts are the parts of a GOROOT that building programs needs. The rest is documentation and tests.
var parts = []string{"LICENSE", "PATENTS", "VERSION", "go.env", "bin", "lib", "pkg", "src"}

// GOROOT returns the second GOROOT for a toolchain, and makes it if it does not exist. It is
// safe for concurrent use, even by several processes. If ctx ends, it leaves nothing behind.
func GOROOT(ctx context.Context, t *Toolchain, o Options) (string, error) {
	if err := t.supported(); err != nil {
		return "", err
	}
	original := *t
	original.GOROOT = t.First()
	t = &original
	if o.Cache == "" {
		dir, err := os.UserCacheDir()
		if err != nil {
			return "", fmt.Errorf("no cache directory for the patched Go: %w; set SDP_GOCACHE to a directory", err)
		}
		o.Cache = filepath.Join(dir, "gosdp", "go")
	}
	cache, err := filepath.Abs(o.Cache) // the go command may work elsewhere (-C)
	if err != nil {
		return "", err
	}
	if strings.ContainsRune(cache, os.PathListSeparator) {
		return "", fmt.Errorf("invalid cache directory %s: %q separates the entries of PATH; set SDP_GOCACHE to another directory", cache, os.PathListSeparator)
	}
	o.Cache = cache
	key, err := fingerprint(t, o)
	if err != nil {
		return "", fmt.Errorf("reading %s: %w", t.GOROOT, err)
	}
	goroot := filepath.Join(o.Cache, release(t.GOVERSION)+o.name()+"-"+key)
	if err := os.MkdirAll(o.Cache, 0o755); err != nil {
		return "", fmt.Errorf("creating the patched %s in %s: %w", t.GOVERSION, o.Cache, err)
	}
	if err := trusted(o.Cache); err != nil {
		return "", err
	}
	if there, err := used(goroot); err != nil {
		return "", err
	} else if there {
		return goroot, trusted(goroot)
	}
	if err := build(ctx, t, o, goroot); err != nil {
		return "", err
	}
	if err := trusted(goroot); err != nil { // another process was faster
		return "", err
	}
	removeStale(o.Cache, goroot)
	return goroot, nil
}

// name returns what tells second GOROOTs with these options from others of the same version of Go.
func (o *Options) name() string {
	switch {
	case o.Verbs:
		return "-verbs"
	case o.RDMA:
		return "-iwarp"
	}
	return ""
}

const (
	// usedFile is in every second GOROOT. Its time is that of the last use.
	usedFile = ".gosdp"
	// keptFile is in those that may be used without the tool.
	keptFile = ".gosdp-kept"
)

// used notes a use of a second GOROOT, and reports whether it exists. It has its name only when it
// is complete.
func used(goroot string) (bool, error) {
	file := filepath.Join(goroot, usedFile)
	if _, err := os.Stat(file); err != nil {
		if errors.Is(err, fs.ErrPermission) {
			return false, fmt.Errorf("patched Go not usable: %w", err)
		}
		return false, nil
	}
	now := time.Now()
	os.Chtimes(file, now, now) // fails in a read-only cache, where nothing is removed either
	return true, nil
}

// Keep says that a second GOROOT will be used without the tool, which then cannot note the uses. It is
// removed like one that is not replaced.
func Keep(goroot string) {
	os.WriteFile(filepath.Join(goroot, keptFile), nil, 0o644) // fails in a read-only cache, as used does
}

// fingerprint returns a hash of everything that a second GOROOT is made of. For the files of the
// first GOROOT it uses name, size and time.
func fingerprint(t *Toolchain, o Options) (string, error) {
	h := sha256.New()
	fmt.Fprintln(h, t.GOROOT, t.GOVERSION, o.RDMA, o.Verbs, Version(), hookEdits, unixEdits, lateConstants)
	for _, from := range []fs.FS{gosdp.Sources, std} {
		if err := hashFiles(h, from); err != nil {
			return "", err
		}
	}
	for _, part := range parts {
		err := walk(filepath.Join(t.GOROOT, part), func(file string, e fs.DirEntry) error {
			if e.IsDir() {
				return nil
			}
			info, err := os.Stat(file)
			if err != nil {
				return err
			}
			fmt.Fprintln(h, file, info.Size(), info.ModTime().UnixNano())
			return nil
		})
		if err != nil {
			return "", err
		}
	}
	return hex.EncodeToString(h.Sum(nil))[:8], nil
}

func hashFiles(h hash.Hash, from fs.FS) error {
	return fs.WalkDir(from, ".", func(file string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || strings.HasSuffix(file, "_test.go") {
			return err
		}
		text, err := fs.ReadFile(from, file)
		fmt.Fprintln(h, file, len(text))
		h.Write(text)
		return err
	})
}

// build makes the second GOROOT under another name and then renames it, so that a directory with
// the final name is complete. If another process was faster, build uses its result.
func build(ctx context.Context, t *Toolchain, o Options, goroot string) (err error) {
	fail := func(err error) error {
		if ctx.Err() != nil {
			err = errors.New("interrupted")
		}
		return fmt.Errorf("creating the patched %s in %s: %w", t.GOVERSION, o.Cache, err)
	}
	temp, err := os.MkdirTemp(o.Cache, tempPrefix)
	if err != nil {
		return fail(err)
	}
	defer removeAll(temp)
	if err := fill(ctx, t, o, temp); err != nil {
		return fail(err)
	}
	if err := os.Chmod(temp, 0o755); err != nil { // for other users, if this one's cache is theirs too
		return fail(err)
	}
	if err := os.Rename(temp, goroot); err != nil {
		if there, _ := used(goroot); !there {
			return fail(err)
		}
	}
	return nil
}

const tempPrefix = ".making-"

func fill(ctx context.Context, t *Toolchain, o Options, to string) error {
	for _, dir := range []string{"src/net", vendored} {
		if _, err := os.Stat(filepath.Join(t.GOROOT, dir)); errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%s has no %s: install the package with Go's sources, or Go from https://go.dev/dl", t.GOROOT, dir)
		}
	}
	for _, part := range parts {
		if err := link(ctx, filepath.Join(to, part), filepath.Join(t.GOROOT, part)); err != nil {
			return err
		}
	}
	src := filepath.Join(to, "src")
	if _, err := os.Stat(filepath.Join(src, inside)); err == nil {
		return fmt.Errorf("%s is patched already", t.GOROOT)
	}
	net := make(files)
	if err := net.read(filepath.Join(src, "net")); err != nil {
		return err
	}
	if err := writeHooks(filepath.Join(src, "net"), t.GOVERSION, net); err != nil {
		return err
	}
	roots := []string{"sdp"}
	text := "//go:build " + hooked + "\n\npackage net\n\nconst sdpRDMA = " + strconv.FormatBool(o.RDMA || o.Verbs) + "\n"
	if err := os.WriteFile(filepath.Join(src, "net", "sdp_options.go"), []byte(text), 0o644); err != nil {
		return err
	}
	if o.Verbs {
		roots = append(roots, "rdma/verbs")
		text := "//go:build " + hooked + " && cgo\n\npackage net\n\nimport _ \"" + inside + "rdma/verbs\"\n"
		if err := os.WriteFile(filepath.Join(src, "net", "sdp_verbs.go"), []byte(text), 0o644); err != nil {
			return err
		}
	}
	if err := writeLibrary(to, t.GOVERSION, roots); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(to, usedFile), []byte(t.GOROOT+"\n"), 0o644)
}

// read reads those sources of a package that may be built for Linux.
func (fs files) read(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		name := e.Name()
		if e.IsDir() || path.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go") {
			continue
		}
		if err := fs.add(dir, name); err != nil {
			return err
		}
	}
	return nil
}

// add reads one file, and leaves it out if it is not built for Linux.
func (fs files) add(dir, name string) error {
	text, err := os.ReadFile(filepath.Join(dir, name))
	if err == nil && mayBuild(name, text) {
		fs[name] = text
	}
	return err
}

// writeHooks changes package net for the systems that have hooks. It writes two copies of each file
// that it changes: the changed one for these systems, and the original for all others.
func writeHooks(dir, version string, net files) error {
	changed, err := net.apply("package net of "+version, hookEdits)
	if err != nil {
		return err
	}
	for _, name := range changed {
		file := filepath.Join(dir, name)
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		// The file is a link to that of the first GOROOT.
		if err := os.Remove(file); err != nil {
			return err
		}
		if err := os.WriteFile(file, constrain(text, "!("+hooked+")"), 0o644); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, "sdp_"+name), constrain(net[name], hooked), 0o644); err != nil {
			return err
		}
	}
	hook, err := hookSource(version)
	if err != nil {
		return err
	}
	if err := writeDir(dir, std, "_std/net"); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "sdp_hook.go"), hook, 0o644); err != nil {
		return err
	}
	text := "//go:build " + refused + "\n\npackage net\n\nvar _ = there_is_SDP_only_for_linux_on_" + strings.Join(Architectures, "_and_") + "\n"
	return os.WriteFile(filepath.Join(dir, "sdp_refused.go"), []byte(text), 0o644)
}

// hookSource returns the file with the functions that the edits call, and with the marker of programs that
// a version of Go builds. The marker has the release, because the version in a program also names the
// experiments of its build.
func hookSource(version string) ([]byte, error) {
	hook, err := std.ReadFile("_std/net/sdp_hook.go")
	hook = bytes.ReplaceAll(hook, []byte("@@VERSION@@"), []byte(Version()))
	return bytes.ReplaceAll(hook, []byte("@@GOVERSION@@"), []byte(release(version))), err
}

// walk calls f with everything in a part of a GOROOT, and not at all if the part does not
// exist. It follows links to directories, because distributions keep parts elsewhere
// (/usr/lib/go-1.26/src is a link on Debian).
func walk(part string, f func(file string, e fs.DirEntry) error) error {
	return walkLinks(part, part, 0, f)
}

// maxLinks limits links within links.
const maxLinks = 8

// walkLinks walks the tree at real, whose name is as.
func walkLinks(as, real string, links int, f func(file string, e fs.DirEntry) error) error {
	return filepath.WalkDir(real, func(file string, e fs.DirEntry, err error) error {
		if err != nil {
			if errors.Is(err, fs.ErrNotExist) && file == real && links == 0 {
				return nil
			}
			return err
		}
		rel, err := filepath.Rel(real, file)
		if err != nil {
			return err
		}
		name := filepath.Join(as, rel)
		if e.Type()&fs.ModeSymlink == 0 {
			return f(name, e)
		}
		target, err := filepath.EvalSymlinks(file)
		if err != nil {
			return err
		}
		info, err := os.Stat(target)
		switch {
		case err != nil:
			return err
		case !info.IsDir():
			return f(name, e)
		case links == maxLinks:
			return fmt.Errorf("%s: too many links", name)
		}
		return walkLinks(name, target, links+1, f)
	})
}

// link makes hard links to the files of a tree, or copies where the file system or its rules
// do not let it. A part that is not there is left out.
func link(ctx context.Context, to, from string) error {
	return walk(from, func(file string, e fs.DirEntry) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		rel, err := filepath.Rel(from, file)
		if err != nil {
			return err
		}
		target := filepath.Join(to, rel)
		switch {
		case e.IsDir():
			return os.MkdirAll(target, 0o755)
		case e.Type()&fs.ModeSymlink != 0:
			return copyFile(target, file)
		case !e.Type().IsRegular():
			return nil
		}
		if os.Link(file, target) == nil {
			return nil
		}
		return copyFile(target, file)
	})
}

func copyFile(to, from string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return err
	}
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, info.Mode().Perm()|0o200)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	if e := out.Close(); err == nil {
		err = e
	}
	return err
}

const (
	staleTime    = 30 * 24 * time.Hour // unused for so long a second GOROOT is removed,
	replacedTime = 24 * time.Hour      // and one that the new one replaces after this time
	brokenAge    = time.Hour           // what an interrupted process has left, too
)

// removeStale removes second GOROOTs that were not used for long. Another process may be using one
// that was used recently.
func removeStale(cache, goroot string) {
	entries, err := os.ReadDir(cache)
	if err != nil {
		return
	}
	replaces := replaceable(filepath.Base(goroot))
	for _, e := range entries {
		dir := filepath.Join(cache, e.Name())
		if dir == goroot || !e.IsDir() {
			continue
		}
		if strings.HasPrefix(e.Name(), tempPrefix) {
			if info, err := e.Info(); err == nil && time.Since(info.ModTime()) > brokenAge {
				removeAll(dir)
			}
			continue
		}
		info, err := os.Stat(filepath.Join(dir, usedFile))
		if err != nil {
			continue
		}
		limit := staleTime
		if _, err := os.Stat(filepath.Join(dir, keptFile)); err != nil && replaceable(e.Name()) == replaces {
			limit = replacedTime
		}
		if time.Since(info.ModTime()) > limit {
			removeAll(dir)
		}
	}
}

// replaceable returns the part of a second GOROOT's name that those have in common which replace each
// other: the version of Go and the options.
func replaceable(name string) string { return name[:max(0, strings.LastIndex(name, "-"))] }

// removeAll removes a second GOROOT. It renames it first, so that no process finds it incomplete.
func removeAll(dir string) {
	if !strings.HasPrefix(filepath.Base(dir), tempPrefix) {
		gone := filepath.Join(filepath.Dir(dir), tempPrefix+filepath.Base(dir))
		if os.Rename(dir, gone) != nil {
			return
		}
		dir = gone
	}
	os.RemoveAll(dir)
}

// Version is the version of this module in the tool that is running.
func Version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "(devel)"
	}
	for _, m := range append(info.Deps, &info.Main) {
		if m.Path == strings.TrimSuffix(module, "/") && m.Version != "" {
			return m.Version
		}
	}
	return "(devel)"
}
