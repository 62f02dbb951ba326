package diagnose

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/gosdp/gosdp/internal/shmdir"
)

// memoryNeeds returns the needs of device shm.
func memoryNeeds(root string, getenv func(string) string) []Need {
	needs := []Need{sighted(), ptrace(root), namespaces(root)}
	if dir := getenv("SDP_SHM_DIR"); dir != "" {
		needs = append(needs, sharedDirectory(dir))
	}
	return needs
}

// ptrace checks whether a program may read the memory of another one of the same user, which zero
// copy over shm needs.
func ptrace(root string) Need {
	n := Need{Name: "reading peers' memory (zero copy)", Optional: true, OK: true, Found: "ptrace is not restricted"}
	text, err := os.ReadFile(filepath.Join(root, "proc/sys/kernel/yama/ptrace_scope"))
	if scope := strings.TrimSpace(string(text)); err == nil && scope != "0" {
		n.OK = false
		n.Found = "ptrace is restricted: kernel.yama.ptrace_scope=" + scope
		n.Advice = "large requests and responses over shm are copied; where zero copy would be faster, sysctl kernel.yama.ptrace_scope=0 allows it"
		return n
	}
	if err := readOwnMemory(); err != nil {
		n.OK = false
		n.Found = fmt.Sprintf("process_vm_readv: %v", err)
		n.Advice = "a sandbox forbids process_vm_readv: large requests and responses over shm are copied"
	}
	return n
}

// namespaces returns the namespaces of this process. shm works within one network namespace.
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
	info, err := os.Stat(dir)
	switch {
	case err != nil:
		n.OK, n.Found = false, err.Error()
		n.Advice = "mount the same directory into every container whose programs are to meet"
	case !info.IsDir():
		n.OK, n.Found = false, dir+" is not a directory"
	case !filepath.IsAbs(dir):
		n.OK, n.Found = false, dir+" is not an absolute path"
		n.Advice = "name it by its absolute path, or Dial and Listen fail"
	default:
		if _, err := shmdir.Open(dir); err != nil {
			n.OK, n.Found = false, fmt.Sprintf("%s: %v", dir, err)
			n.Advice = "docs/containers.md says which owner, mode and file system it may have"
		}
	}
	return n
}
