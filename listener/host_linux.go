package listener

import (
	"os"

	"github.com/gosdp/gosdp/internal/sysfile"
)

// readHost puts the network namespace beside the kernel's boot id, because two
// containers on one kernel are two hosts to each other.
func readHost() host {
	boot, err := sysfile.Read("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return host{}
	}
	network, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		return host{}
	}
	pid, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		return host{}
	}
	return host{id: boot + "\x00" + network, pid: pid}
}
