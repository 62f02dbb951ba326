//go:build linux

package shm

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gosdp/gosdp/rdma"
)

// device is the registry's entry.
type device struct{}

var _ rdma.Keeper = device{}

func init() { rdma.RegisterDevice(device{}) }

// Name is "shm".
func (device) Name() string { return "shm" }

// Probe returns nil if the kernel's memory files can be relied on.
func (device) Probe() error { return overcommit() }

// Reaches returns nil for a peer on this host.
func (device) Reaches(p rdma.Peer) error {
	if !p.SameHost {
		return errors.New("the peer is on another host, or in another network namespace")
	}
	return nil
}

// Listen opens a place.
func (device) Listen(cfg rdma.StepConfig) (rdma.Place, error) { return listen(cfg) }

// Dial opens a channel to an end that has invited us.
func (device) Dial(ctx context.Context, a rdma.Address, cfg rdma.StepConfig, private []byte, settle func([]byte) (int, error)) (rdma.QueuePair, error) {
	if a.Socket == "" {
		return nil, errors.New("shm: the peer names no socket")
	}
	if heldUp() {
		return nil, errAside
	}
	if err := mapped.fits(); err != nil {
		return nil, err
	}
	conn, err := connect(ctx, "@"+a.Socket)
	if err != nil {
		return nil, err
	}
	stop := limit(ctx, conn)
	q, err := join(conn, a, cfg, private, settle)
	if !stop() && err == nil {
		q.Abort()
		err = ctx.Err()
	}
	if err != nil {
		closeInBackground(conn) // it may have accepted descriptors
		return nil, err
	}
	return q, nil
}

// fullTime is for how long a Dial tries again when a place's backlog is full.
const fullTime = 20 * time.Millisecond

// connect connects to a place. The kernel does not tell when a backlog that is full, of
// strangers perhaps, has room again.
func connect(ctx context.Context, address string) (*net.UnixConn, error) {
	d := net.Dialer{Control: prepare}
	for begin := time.Now(); ; time.Sleep(time.Millisecond) {
		c, err := d.DialContext(ctx, "unix", address)
		if err == nil {
			return c.(*net.UnixConn), nil
		}
		if !errors.Is(err, unix.EAGAIN) || time.Since(begin) > fullTime {
			return nil, err
		}
	}
}

// limit has the calls on conn fail when ctx is done. stop ends that, and reports
// whether it was in time.
func limit(ctx context.Context, conn *net.UnixConn) (stop func() bool) {
	return context.AfterFunc(ctx, func() { conn.SetDeadline(past) })
}

// unmapped is the uid that by default stands for all those which have none in this user
// namespace; it says nothing about who it is. overflow is the one that this host has.
const unmapped = 65534

var overflow = sync.OnceValue(func() int {
	text, err := os.ReadFile("/proc/sys/kernel/overflowuid")
	if err != nil {
		return unmapped
	}
	uid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return unmapped
	}
	return uid
})

// credentials returns the pid of the process at the other end, 0 if it is in
// another pid namespace, and its user, if that may be the peer.
func credentials(conn *net.UnixConn, uids []int) (pid, uid int, err error) {
	rc, err := conn.SyscallConn()
	if err != nil {
		return 0, 0, err
	}
	if e := rc.Control(func(fd uintptr) { pid, uid, err = credentialsOf(int(fd), uids) }); e != nil {
		return 0, 0, e
	}
	return pid, uid, err
}

// credentialsOf is credentials of a descriptor.
func credentialsOf(fd int, uids []int) (pid, uid int, err error) {
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
