package main

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"path/filepath"
)

// hook is package hook's source. A library of another version may lack it.
//
//go:embed hook/*.go
var hook embed.FS

// constraint keeps package hook's files out of ordinary builds, where package net
// does not have the variables that they set.
const constraint = "//go:build sdpswap\n"

// findLibrary finds gosdp. If it is in the module cache, where the go command
// allows no overlay, the library is a copy.
func (s *swap) findLibrary(ctx context.Context) error {
	if s.library == "" {
		tool := s.tool
		tool.dir = "" // of this process: the program's module need not know gosdp
		dir, err := tool.line(ctx, "list", "-m", "-f", "{{.Dir}}", libraryPath)
		if err == nil && dir == "" {
			err = errors.New("go list does not know its directory")
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

// overlayHook has the library contain package hook, without the constraint.
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
