//go:build unix

package proxy

import "syscall"

// nonblocking lets a FIFO be opened that no program writes to.
const nonblocking = syscall.O_NONBLOCK

func closeOnExec(fd int) { syscall.CloseOnExec(fd) }

// descriptors returns how many descriptors this process may open. The runtime has raised
// the soft limit to the hard one.
func descriptors() uint64 {
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) != nil {
		return 0
	}
	return uint64(limit.Cur)
}
