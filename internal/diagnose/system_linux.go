package diagnose

import "golang.org/x/sys/unix"

// lockLimit returns how much memory this process may lock.
func lockLimit() (limit uint64, unlimited, exempt bool) {
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &l); err != nil {
		return 0, true, false
	}
	var has [2]unix.CapUserData
	err := unix.Capget(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &has[0])
	return l.Cur, l.Cur == unix.RLIM_INFINITY, err == nil && has[0].Effective&(1<<unix.CAP_IPC_LOCK) != 0
}
