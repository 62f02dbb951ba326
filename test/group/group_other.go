//go:build !linux

// Package group ends programs with everything that they started, on Linux; here
// it ends the program alone.
package group

import "os/exec"

// Own prepares nothing here.
func Own(*exec.Cmd) {}

// Kill kills the command.
func Kill(cmd *exec.Cmd) error { return cmd.Process.Kill() }
