//go:build linux && cgo

package verbs

import (
	"errors"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

// credentials are what the kernel keeps for each thread and a program can read. rdma_cm, and the
// verbs of software devices, refuse a thread whose record of credentials is not the one with which
// the file was opened, even if both say the same. All threads have one record until setuid, setgid
// or the like gives each its own. From then on a goroutine works or fails with its thread.
type credentials struct {
	uids, gids   [3]int // real, effective, saved
	groups       []int
	capabilities [2]unix.CapUserData
}

// atStart are those with which the process has started.
var atStart = readCredentials()

func readCredentials() (c credentials) {
	c.uids[0], c.uids[1], c.uids[2] = unix.Getresuid()
	c.gids[0], c.gids[1], c.gids[2] = unix.Getresgid()
	c.groups, _ = syscall.Getgroups()
	_ = unix.Capget(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &c.capabilities[0])
	return c
}

var errCredentials = errors.New("process credentials changed since its start; RDMA works after exec, or set User= in the systemd unit")

// sameCredentials returns nil if the credentials are those with which the process has started.
func sameCredentials() error {
	now := readCredentials()
	if now.uids != atStart.uids || now.gids != atStart.gids || now.capabilities != atStart.capabilities ||
		!slices.Equal(now.groups, atStart.groups) {
		return errCredentials
	}
	return nil
}
