package diagnose

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gosdp/gosdp/internal/rnics"
)

// leastLocked is the least memory that a connection over verbs locks, in bytes.
const leastLocked = 256 << 10

// hardwareNeeds returns the needs of device verbs.
func hardwareNeeds(root string) []Need {
	needs := []Need{
		library(root, "libibverbs.so.1", "libibverbs1"),
		library(root, "librdmacm.so.1", "librdmacm1"),
		hardware(root),
		permission(root, "dev/infiniband/rdma_cm", "rdma_ucm"),
	}
	devices, _ := filepath.Glob(filepath.Join(root, "dev/infiniband/uverbs*"))
	for _, d := range devices {
		name, _ := filepath.Rel(root, d)
		needs = append(needs, permission(root, name, "ib_uverbs"))
	}
	return append(needs, lockedMemory())
}

// library checks whether the dynamic linker would find a shared library.
func library(root, name, debian string) Need {
	n := Need{Name: name}
	for _, dir := range []string{"lib/*-linux-gnu", "usr/lib/*-linux-gnu", "lib64", "usr/lib64", "lib", "usr/lib", "usr/local/lib"} {
		if found, _ := filepath.Glob(filepath.Join(root, dir, name)); len(found) > 0 {
			n.OK, n.Found = true, found[0]
			return n
		}
	}
	n.Found = "not installed"
	n.Advice = "install rdma-core (Debian, Ubuntu: " + debian + ")"
	return n
}

// hardware lists the RDMA devices that the kernel knows.
func hardware(root string) Need {
	n := Need{Name: "RDMA device"}
	found, _ := os.ReadDir(filepath.Join(root, "sys/class/infiniband"))
	if len(found) == 0 {
		n.Found = "the kernel knows none"
		n.Advice = "without RDMA hardware nothing is missing; otherwise load its driver (rdma link)"
		return n
	}
	var devices []string
	for _, d := range found {
		devices = append(devices, d.Name())
	}
	n.OK, n.Found = true, strings.Join(devices, ", ")
	var networks []string
	for _, p := range rnics.Networks() {
		networks = append(networks, p.String())
	}
	slices.Sort(networks)
	if len(networks) > 0 {
		n.Found += " with " + strings.Join(networks, ", ")
	} else {
		n.Found += ", none of them hardware with an IP address"
	}
	return n
}

// permission checks whether this process may open a device file.
func permission(root, name, module string) Need {
	n := Need{Name: "/" + name}
	f, err := os.OpenFile(filepath.Join(root, name), os.O_RDWR, 0)
	switch {
	case errors.Is(err, os.ErrNotExist):
		n.Found = "not there"
		n.Advice = "modprobe " + module
	case errors.Is(err, os.ErrPermission):
		n.Found = "no permission"
		n.Advice = "the program's user needs read and write access to it; in a container, also the device"
	case err != nil:
		n.Found = err.Error()
	default:
		f.Close()
		n.OK, n.Found = true, "may be opened"
	}
	return n
}

// lockedMemory checks whether this process may lock the memory of a connection.
func lockedMemory() Need {
	n := Need{Name: "locked memory"}
	limit, unlimited, exempt := lockLimit()
	switch {
	case exempt:
		n.OK, n.Found = true, "not limited (CAP_IPC_LOCK)"
	case unlimited:
		n.OK, n.Found = true, "not limited"
	case limit >= leastLocked:
		n.OK, n.Found = true, fmt.Sprintf("%d KB (RLIMIT_MEMLOCK)", limit>>10)
	default:
		n.Found = fmt.Sprintf("too little: %d KB (RLIMIT_MEMLOCK), and a connection needs %d KB", limit>>10, leastLocked>>10)
		n.Advice = "ulimit -l unlimited, or LimitMEMLOCK=infinity in the systemd unit"
	}
	return n
}
