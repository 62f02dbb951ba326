// Package group ends programs together with all processes that they started, such as
// stopped peers or a virtual machine. Otherwise an interrupted test would leave them
// running. This works on Linux; on other systems only the program itself is ended. The
// functions are safe for concurrent use with different commands.
package group

import (
	"os"
	"os/exec"
	"syscall"
)

// Own makes cmd start in its own process group. Call it before cmd is started.
func Own(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// Kill kills the process group of a command that was passed to Own. It returns
// [os.ErrProcessDone] if all its processes have ended.
func Kill(cmd *exec.Cmd) error {
	err := syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	if err == syscall.ESRCH {
		return os.ErrProcessDone
	}
	return err
}
