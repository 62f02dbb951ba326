//go:build unix

package main

import (
	"os/exec"
	"syscall"
)

// own has the command, which was not started yet, and the programs that it will
// start be a process group of their own, and be interrupted together.
func own(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGINT) }
}

// kill kills what is left of the group of a command that own was called with.
func kill(cmd *exec.Cmd) { syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
