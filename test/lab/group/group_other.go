//go:build !linux

// Package group ends programs together with all processes that they started on Linux. On
// this system it ends only the program itself.
package group

import "os/exec"

// Own does nothing on this system.
func Own(*exec.Cmd) {}

// Kill kills the command's process.
func Kill(cmd *exec.Cmd) error { return cmd.Process.Kill() }
