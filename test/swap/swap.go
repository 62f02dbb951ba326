package main

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
)

const (
	libraryPath = "github.com/gosdp/gosdp"
	hookPath    = libraryPath + "/test/swap/hook"
)

// swap is one call of the tool.
type swap struct {
	devices string // for SDP_DEVICES; "" leaves it unchanged
	library string // directory of gosdp; "" means the one that go list finds
	module  string // path@version to download; "" means the module in dir
	dir     string // working directory of the go command
	in      io.Reader
	out     io.Writer
	err     io.Writer

	temp  string // removed when run returns
	tool  goTool
	mod   module
	files overlay
}

// run executes a go command. If the go command fails, the error is an [*exec.ExitError].
func (s *swap) run(ctx context.Context, args []string) (err error) {
	cmd, err := parseCommand(args)
	if err != nil {
		return err
	}
	if err := s.directories(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(s.temp)) }()

	// From here on, every go command uses only this module, and the Go installation whose
	// package net is patched.
	s.tool = goTool{path: cmd.tool, dir: s.dir, env: []string{"GOTOOLCHAIN=local"}}
	if err := s.findLibrary(ctx); err != nil {
		return err
	}
	if err := s.findModule(ctx); err != nil {
		return err
	}
	s.tool.dir = s.mod.workDir
	s.tool.env = append(s.tool.env, "GOWORK=off")
	if err := s.writeGoMod(ctx); err != nil {
		return err
	}
	if err := s.overlayNet(ctx); err != nil {
		return err
	}
	if err := s.overlayHook(); err != nil {
		return err
	}
	if err := s.files.write(s.overlayFile()); err != nil {
		return err
	}
	packages, err := s.packages(ctx, cmd)
	if err != nil {
		return err
	}
	if err := s.overlayPackages(ctx, cmd, packages); err != nil {
		return err
	}
	if err := s.files.write(s.overlayFile()); err != nil {
		return err
	}
	if s.module != "" {
		if err := cmd.keepOutput(packages); err != nil {
			return err
		}
	}
	return s.execute(ctx, cmd)
}

// directories makes the temporary directory, and the other paths absolute.
func (s *swap) directories() (err error) {
	if s.module != "" && s.dir != "" {
		return errors.New("-module and -C exclude each other")
	}
	if s.dir, err = filepath.Abs(s.dir); err != nil {
		return err
	}
	if s.library != "" {
		if s.library, err = filepath.Abs(s.library); err != nil {
			return err
		}
	}
	temp, err := os.MkdirTemp("", "sdpswap-")
	if err != nil {
		return err
	}
	// File names in an overlay must match those of the go command, which resolves links.
	if s.temp, err = filepath.EvalSymlinks(temp); err != nil {
		return errors.Join(err, os.RemoveAll(temp))
	}
	s.files = overlay{temp: s.temp, replace: make(map[string]string)}
	return nil
}

func (s *swap) overlayFile() string { return filepath.Join(s.temp, "overlay.json") }

// flags returns the go command's flags for the overlay and the changed go.mod.
func (s *swap) flags() []string {
	return []string{"-overlay=" + s.overlayFile(), "-modfile=" + filepath.Join(s.temp, "go.mod"), "-mod=mod"}
}

// execute runs the go command.
func (s *swap) execute(ctx context.Context, c *command) error {
	args := append([]string{c.name}, s.flags()...)
	if c.name == "test" {
		args = append(args, "-vet=off") // vet's findings have nothing to do with SDP
	}
	tool := s.tool
	if s.devices != "" {
		tool.env = append(tool.env, "SDP_DEVICES="+s.devices)
	}
	if report := os.Getenv("SDP_SWAP_REPORT"); report != "" {
		// Programs may run in other directories.
		report, err := filepath.Abs(report)
		if err != nil {
			return err
		}
		tool.env = append(tool.env, "SDP_SWAP_REPORT="+report)
	}
	cmd := tool.command(ctx, append(args, c.args...)...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = s.in, s.out, s.err
	ownGroup(cmd)
	err := cmd.Run()
	if ctx.Err() != nil && cmd.Process != nil {
		kill(cmd)
	}
	return err
}

// inside reports whether a file is below dir, or is dir.
func inside(file, dir string) bool {
	rel, err := filepath.Rel(dir, file)
	return err == nil && rel != ".." && !strings.HasPrefix(rel, ".."+string(filepath.Separator))
}
