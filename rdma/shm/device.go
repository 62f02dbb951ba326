//go:build linux

package shm

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/gosdp/gosdp/internal/sysfile"
	"github.com/gosdp/gosdp/rdma"
)

// device implements rdma.Offerer.
type device struct{}

var _ rdma.Offerer = device{}

func init() { rdma.RegisterDevice(device{}) }

// Name is "shm".
func (device) Name() string { return "shm" }

// Probe returns nil if the kernel's memory files can be relied on.
func (device) Probe() error { return overcommit() }

// Reaches returns nil for a peer on this host.
func (device) Reaches(p rdma.Peer) error {
	if !p.SameHost && !p.InDir {
		return errors.New("the peer is on another host, or in another network namespace")
	}
	return nil
}

// Listen prepares the end that listens.
func (device) Listen(cfg rdma.ChannelConfig) (rdma.ChannelListener, error) {
	return &place{cfg: cfg}, nil
}

// unmapped is the default uid of all users that have none in this user namespace, so it does not
// identify a user. overflow is the one of this host.
const unmapped = 65534

var overflow = sync.OnceValue(func() int {
	text, err := sysfile.Read("/proc/sys/kernel/overflowuid")
	if err != nil {
		return unmapped
	}
	uid, err := strconv.Atoi(text)
	if err != nil {
		return unmapped
	}
	return uid
})

// credentials returns the pid of the process at the other end of a socket, 0 if that is in another
// pid namespace, and its user. It fails if this user may not be the peer.
func credentials(fd int, uids []int) (pid, uid int, err error) {
	cred, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return 0, 0, os.NewSyscallError("SO_PEERCRED", err)
	}
	return int(cred.Pid), int(cred.Uid), allowed(int(cred.Uid), uids)
}

// allowed returns nil if the user may be the peer.
func allowed(uid int, uids []int) error {
	if uid == unmapped || uid == overflow() || uid != os.Geteuid() && !slices.Contains(uids, uid) {
		return fmt.Errorf("shm: the peer's user has the uid %d, ours %d", uid, os.Geteuid())
	}
	return nil
}
