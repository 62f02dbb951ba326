package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/version"
	"os"
	"path/filepath"
	"strings"
)

// module is the module that the go command is to work on.
type module struct {
	Path    string
	root    string // where its go.mod is
	workDir string // where the go command runs: root, or below it
	// siblings are the directories of the other modules of its workspace, by path.
	siblings map[string]string
}

// goMod is what go mod edit says of a go.mod.
type goMod struct {
	Module  struct{ Path string }
	Go      string
	GoDebug []struct{ Key, Value string }
	Require []struct{ Path, Version string }
	Replace []struct {
		Old, New struct{ Path, Version string }
	}
}

// findModule finds the module, or downloads and copies it.
func (s *swap) findModule(ctx context.Context) error {
	if s.module != "" {
		return s.download(ctx)
	}
	env, err := s.tool.variables(ctx, "GOMOD", "GOWORK")
	if err != nil {
		return err
	}
	if env["GOMOD"] == "" || env["GOMOD"] == os.DevNull {
		return fmt.Errorf("%s is in no module; use -module or -C", s.dir)
	}
	s.mod = module{root: filepath.Dir(env["GOMOD"]), workDir: s.dir}
	if env["GOWORK"] == "" || env["GOWORK"] == "off" {
		return nil
	}
	out, err := s.tool.output(ctx, "list", "-m", "-f", "{{.Path}}\t{{.Dir}}")
	if err != nil {
		return err
	}
	s.mod.siblings = make(map[string]string)
	for line := range strings.Lines(string(out)) {
		path, dir, _ := strings.Cut(strings.TrimSpace(line), "\t")
		s.mod.siblings[path] = dir
	}
	return nil
}

// download copies a module that is not on this machine, or in the module cache.
func (s *swap) download(ctx context.Context) error {
	tool := s.tool
	tool.dir, tool.env = s.temp, append(tool.env, "GOWORK=off")
	out, err := tool.output(ctx, "mod", "download", "-json", s.module)
	var got struct{ Dir, GoMod, Error string }
	if json.Unmarshal(out, &got) == nil && got.Error != "" {
		return errors.New(got.Error)
	}
	if err != nil {
		return err
	}
	root := filepath.Join(s.temp, "module")
	if err := copyDir(root, got.Dir); err != nil {
		return err
	}
	s.mod = module{root: root, workDir: root}
	if _, err := os.Stat(filepath.Join(root, "go.mod")); err == nil {
		return nil
	}
	text, err := os.ReadFile(got.GoMod) // what the go command made up for it
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(root, "go.mod"), text, 0o644)
}

// writeGoMod writes a go.mod, and the go.sum that belongs to it, for the module
// and the library together.
func (s *swap) writeGoMod(ctx context.Context) error {
	for _, name := range []string{"go.mod", "go.sum"} {
		text, err := os.ReadFile(filepath.Join(s.mod.root, name))
		if errors.Is(err, os.ErrNotExist) && name == "go.sum" {
			continue
		}
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(s.temp, name), text, 0o644); err != nil {
			return err
		}
	}
	old, err := s.readGoMod(ctx, s.temp)
	if err != nil {
		return err
	}
	s.mod.Path = old.Module.Path
	if s.mod.Path == libraryPath {
		s.library = s.mod.root // it has nothing to require
		return nil
	}
	library, err := s.readGoMod(ctx, s.library)
	if err != nil {
		return err
	}
	edit := []string{"mod", "edit", "-require=" + libraryPath + "@v0.0.0", "-replace=" + libraryPath + "=" + s.library}
	for path, dir := range s.mod.siblings {
		if path != s.mod.Path && path != libraryPath {
			edit = append(edit, "-replace="+path+"="+dir)
		}
	}
	for _, r := range old.Replace {
		if s.module != "" && r.New.Version == "" && r.Old.Path != libraryPath {
			edit = append(edit, "-dropreplace="+strings.TrimSuffix(r.Old.Path+"@"+r.Old.Version, "@"))
		}
	}
	edit = append(edit, old.keepGoDebug(library.Go)...)
	if _, err := s.tool.output(ctx, append(edit, filepath.Join(s.temp, "go.mod"))...); err != nil {
		return err
	}
	return s.files.add(filepath.Join(s.library, "go.mod"), library.onlySys())
}

func (s *swap) readGoMod(ctx context.Context, dir string) (goMod, error) {
	var m goMod
	out, err := s.tool.output(ctx, "mod", "edit", "-json", filepath.Join(dir, "go.mod"))
	if err != nil {
		return m, err
	}
	return m, json.Unmarshal(out, &m)
}

// keepGoDebug returns the edit by which a module that must state a newer version
// of Go, because the library does, behaves as it did.
func (m goMod) keepGoDebug(library string) []string {
	for _, d := range m.GoDebug {
		if d.Key == "default" {
			return nil
		}
	}
	if m.Go == "" || version.Compare("go"+m.Go, "go"+library) >= 0 {
		return nil
	}
	return []string{"-godebug=default=" + version.Lang("go"+m.Go)}
}

// onlySys returns the library's go.mod with golang.org/x/sys as its only
// requirement. The others are its tests', and would choose versions for the
// program.
func (m goMod) onlySys() []byte {
	text := fmt.Appendf(nil, "module %s\n\ngo %s\n", m.Module.Path, m.Go)
	for _, r := range m.Require {
		if r.Path == "golang.org/x/sys" {
			text = fmt.Appendf(text, "\nrequire %s %s\n", r.Path, r.Version)
		}
	}
	return text
}
