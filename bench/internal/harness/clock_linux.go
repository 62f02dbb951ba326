package harness

import (
	"time"

	"golang.org/x/sys/unix"
)

// cpuTime returns the processor time that the process has used. It reads the process's clock, so
// that the process itself has nothing to do.
func (p *process) cpuTime() (time.Duration, error) {
	// A clock's number is made of the pid; 2 stands for the time that the scheduler counts.
	clock := int32(^p.cmd.Process.Pid<<3 | 2)
	var used unix.Timespec
	err := unix.ClockGettime(clock, &used)
	return time.Duration(used.Nano()), err
}
