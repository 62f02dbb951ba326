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

// goTool is the go command, in a directory and with an environment.
type goTool struct {
	path string   // "go", or the path of another one
	dir  string   // where it runs
	env  []string // added to that of this process
}

// command returns the go command with arguments. When ctx ends, the command and
// the programs that it has started are interrupted.
func (g goTool) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, g.path, args...)
	cmd.Dir = g.dir
	cmd.Env = append(cmd.Environ(), g.env...) // with PWD, by which go names files
	cmd.WaitDelay = 10 * time.Second
	return cmd
}

// output returns what a go command prints. The error has what it printed to
// standard error.
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

// line returns the only line that a go command prints.
func (g goTool) line(ctx context.Context, args ...string) (string, error) {
	out, err := g.output(ctx, args...)
	return strings.TrimSpace(string(out)), err
}

// variables returns settings of the go command.
func (g goTool) variables(ctx context.Context, names ...string) (map[string]string, error) {
	out, err := g.output(ctx, append([]string{"env", "-json"}, names...)...)
	if err != nil {
		return nil, err
	}
	values := make(map[string]string)
	return values, json.Unmarshal(out, &values)
}

// copyDir copies a directory and makes the files writable, which those of the
// module cache are not.
func copyDir(to, from string) error {
	return os.CopyFS(to, os.DirFS(from))
}
