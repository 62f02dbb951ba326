package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"
)

// goTool is the go command, with a directory and an environment.
type goTool struct {
	path string   // "go", or a path
	dir  string   // where it runs
	env  []string // added to the environment of this process
}

// command returns a go command. When ctx is done, the command and the programs that it started
// are interrupted.
func (g goTool) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, g.path, args...)
	cmd.Dir = g.dir
	cmd.Env = append(cmd.Environ(), g.env...) // sets PWD, which determines file names in the output
	cmd.WaitDelay = 10 * time.Second
	return cmd
}

// output returns the standard output of a go command. The error contains its standard error.
func (g goTool) output(ctx context.Context, args ...string) ([]byte, error) {
	cmd := g.command(ctx, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		text := strings.TrimSpace(stderr.String())
		return out, fmt.Errorf("go %s: %v\n%s", strings.Join(args, " "), err, text)
	}
	return out, nil
}

// line returns the output of a go command that prints one line.
func (g goTool) line(ctx context.Context, args ...string) (string, error) {
	out, err := g.output(ctx, args...)
	return strings.TrimSpace(string(out)), err
}

// variables returns variables of go env.
func (g goTool) variables(ctx context.Context, names ...string) (map[string]string, error) {
	out, err := g.output(ctx, append([]string{"env", "-json"}, names...)...)
	if err != nil {
		return nil, err
	}
	values := make(map[string]string)
	return values, json.Unmarshal(out, &values)
}

// copyDir copies a directory and makes the files writable. Files in the module cache are not.
func copyDir(to, from string) error {
	return os.CopyFS(to, os.DirFS(from))
}
