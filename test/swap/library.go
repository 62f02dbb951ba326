package main

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"path/filepath"
)

// hook is the source of package hook. Other versions of the library may lack it.
//
//go:embed hook/*.go
var hook embed.FS

// constraint excludes package hook from ordinary builds, where package net lacks the variables
// that it sets.
const constraint = "//go:build sdpswap\n"

// findLibrary finds the gosdp module. If it is in the module cache, where the go command
// permits no overlay, findLibrary copies it.
func (s *swap) findLibrary(ctx context.Context) error {
	if s.library == "" {
		tool := s.tool
		tool.dir = "" // this process's directory, because the program's module need not require gosdp
		dir, err := tool.line(ctx, "list", "-m", "-f", "{{.Dir}}", libraryPath)
		if err == nil && dir == "" {
			err = errors.New("go list reports no directory")
		}
		if err != nil {
			return fmt.Errorf("cannot find %s; use -library: %w", libraryPath, err)
		}
		s.library = dir
	}
	env, err := s.tool.variables(ctx, "GOMODCACHE")
	if err != nil || !inside(s.library, env["GOMODCACHE"]) {
		return err
	}
	to := filepath.Join(s.temp, "library")
	err = copyDir(to, s.library)
	s.library = to
	return err
}

// overlayHook adds package hook, without the constraint, to the library by an overlay.
func (s *swap) overlayHook() error {
	files, err := hook.ReadDir("hook")
	if err != nil {
		return err
	}
	for _, f := range files {
		text, err := hook.ReadFile("hook/" + f.Name())
		if err != nil {
			return err
		}
		text = bytes.TrimPrefix(text, []byte(constraint))
		if err := s.files.add(filepath.Join(s.library, "test", "swap", "hook", f.Name()), text); err != nil {
			return err
		}
	}
	return nil
}
