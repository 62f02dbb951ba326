//go:build !unix

package main

import "os/exec"

// ownGroup does nothing on this system: when ctx is done, only the command itself is killed.
func ownGroup(*exec.Cmd) {}

// kill kills the command.
func kill(cmd *exec.Cmd) { cmd.Process.Kill() }
