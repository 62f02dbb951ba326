package harness

import (
	"bytes"
	"fmt"
	"os"
)

// systemMemory returns the kernel's figures about this process.
func systemMemory() (held Memory, err error) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return held, err
	}
	for name, field := range map[string]*uint64{"VmRSS:": &held.RSS, "RssShmem:": &held.Shared} {
		_, rest, _ := bytes.Cut(status, []byte("\n"+name))
		if _, err := fmt.Sscanf(string(rest), "%d kB", field); err != nil {
			return held, fmt.Errorf("/proc/self/status: %s %w", name, err)
		}
		*field *= 1024
	}
	open, err := os.ReadDir("/proc/self/fd")
	held.FDs = uint64(len(open))
	return held, err
}
