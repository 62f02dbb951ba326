package lab

import (
	"os/exec"
	"syscall"
)

// inGroup has the command, and what it starts, be a process group of their own.
func inGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// killGroup kills them. Some may have ended already.
func killGroup(cmd *exec.Cmd) { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
