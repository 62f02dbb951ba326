package machine

import (
	"bytes"
	"fmt"
	"os"
	"time"
)

// userHZ is how many of its ticks the kernel shows for a second: 100 on every
// architecture that Go has.
const userHZ = 100

// Busy returns how long all processors together have worked for programs, or
// were taken away by the hypervisor, since the machine began. Interrupts are left
// out, because they serve what is measured too. The clock has ticks of 10 ms.
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
