//go:build unix

package harness

import (
	"syscall"
	"time"
)

// cpu returns the processor time that this process has used, user and system.
func cpu() (time.Duration, error) {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0, err
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano()), nil
}
