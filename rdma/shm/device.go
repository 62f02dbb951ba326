//go:build linux

package shm

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/gosdp/gosdp/internal/shmdir"
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

// credentials returns the pid of the process at the other end of a socket, 0 if that is in another
// pid namespace, and its user. It fails if this user may not be the peer.
func credentials(fd int, uids []int) (pid, uid int, err error) {
	cred, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return 0, 0, os.NewSyscallError("SO_PEERCRED", err)
	}
	if err := shmdir.MayMeet(int(cred.Uid), os.Geteuid(), uids); err != nil {
		return 0, 0, fmt.Errorf("shm: %w", err)
	}
	return int(cred.Pid), int(cred.Uid), nil
}
