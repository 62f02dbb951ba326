//go:build !unix

package main

import "os/exec"

// own does nothing here: the end of the context kills the command alone.
func own(*exec.Cmd) {}

// kill kills the command.
func kill(cmd *exec.Cmd) { cmd.Process.Kill() }
