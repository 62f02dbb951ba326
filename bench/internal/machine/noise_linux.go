package machine

import (
	"bytes"
	"fmt"
	"os"
	"time"
)

// userHZ is the kernel's number of ticks per second in /proc: 100 on every
// architecture that Go supports.
const userHZ = 100

// Busy returns the processor time that all programs have used since the machine
// started, plus the time that the hypervisor took away. It excludes interrupts,
// because they also serve the measured programs. The resolution is 10 ms.
func Busy() (time.Duration, error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, err
	}
	return parseBusy(text)
}

// parseBusy reads the first line of /proc/stat (proc_stat(5)).
func parseBusy(text []byte) (time.Duration, error) {
	line, _, _ := bytes.Cut(text, []byte("\n"))
	var user, nice, system, idle, iowait, irq, softirq, steal int64
	if _, err := fmt.Sscanf(string(line), "cpu %d %d %d %d %d %d %d %d",
		&user, &nice, &system, &idle, &iowait, &irq, &softirq, &steal); err != nil {
		return 0, fmt.Errorf("/proc/stat: %w", err)
	}
	return time.Duration(user+nice+system+steal) * (time.Second / userHZ), nil
}
