package diagnose

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/gosdp/gosdp/internal/meeting"
)

// memoryNeeds returns the needs of device shm.
func memoryNeeds(root string, getenv func(string) string) []Need {
	kernel := Need{Name: "kernel", OK: true, Found: "offers what sharing memory needs"}
	if err := sharesMemory(); err != nil {
		kernel.OK, kernel.Found = false, err.Error()
		kernel.Advice = "shm needs Linux 5.14, and no sandbox that forbids this call"
	}
	needs := []Need{kernel, namespaces(root)}
	if dir := getenv("SDP_SHM_DIR"); dir != "" {
		needs = append(needs, sharedDirectory(dir))
	}
	return needs
}

// namespaces returns the network namespace of this process. shm works within one.
func namespaces(root string) Need {
	n := Need{Name: "network namespace", OK: true, Optional: true}
	own, err := os.Readlink(filepath.Join(root, "proc/self/ns/net"))
	if err != nil {
		n.Found = "not known"
		return n
	}
	first, err := os.Readlink(filepath.Join(root, "proc/1/ns/net"))
	switch {
	case err != nil:
		n.Found = own
	case first == own:
		n.Found = own + ", that of process 1"
	default:
		n.Found = own + ", another one than that of process 1"
		n.Advice = "programs outside this namespace are reached over shm only through a shared directory (SDP_SHM_DIR)"
	}
	return n
}

// sharedDirectory is whether the directory for programs of other network namespaces can be
// used.
func sharedDirectory(dir string) Need {
	n := Need{Name: "shared directory", OK: true, Found: dir}
	if !filepath.IsAbs(dir) {
		n.OK, n.Found = false, dir+" is not an absolute path"
		n.Advice = "name it by its absolute path, or Dial and Listen fail"
	} else if err := meeting.CheckDir(dir); err != nil {
		n.OK, n.Found = false, fmt.Sprintf("%s: %v", dir, err)
		n.Advice = "mount the same directory into every container whose programs are to meet; docs/containers.md says which owner and mode it may have"
	}
	return n
}

// sharesMemory makes the system calls that sharing memory needs and that a sandbox or an old kernel may lack.
func sharesMemory() error {
	fd, err := unix.MemfdCreate("sdp-check", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return os.NewSyscallError("memfd_create", err)
	}
	unix.Close(fd)
	if fd, err = unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0); err != nil {
		return os.NewSyscallError("socket AF_UNIX", err)
	}
	defer unix.Close(fd)
	_, err = unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
	return os.NewSyscallError("getsockopt SO_NETNS_COOKIE", err)
}
