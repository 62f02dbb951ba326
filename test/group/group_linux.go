// Package group ends programs with everything that they started, which the tests
// would otherwise leave behind when they are interrupted themselves: peers that
// are stopped, a virtual machine. Only Linux has it; elsewhere the program alone is
// ended. Its functions are safe for concurrent use with different commands.
package group

import (
	"os"
	"os/exec"
	"syscall"
)

// Own has the command, which was not started yet, and what it will start be a
// process group of their own.
func Own(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// Kill kills the group of a command that Own was called with. It returns
// [os.ErrProcessDone] if all have ended.
func Kill(cmd *exec.Cmd) error {
	err := syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	if err == syscall.ESRCH {
		return os.ErrProcessDone
	}
	return err
}
