//go:build unix

package main

import (
	"os/exec"
	"syscall"
)

// ownGroup makes cmd start in its own process group, so that the command and the programs that
// it starts are interrupted together.
func ownGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGINT) }
}

// kill kills the remaining processes in the group of a command passed to ownGroup.
func kill(cmd *exec.Cmd) { syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
