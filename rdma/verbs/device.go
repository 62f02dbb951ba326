//go:build linux && cgo

package verbs

// #cgo LDFLAGS: -ldl
// #include "shim.h"
import "C"

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gosdp/gosdp/internal/rnics"
	"github.com/gosdp/gosdp/rdma"
)

// device is the registry's entry.
type device struct{ rdma.BaseDevice }

var _ rdma.Dialler = device{}

func init() { rdma.RegisterDevice(device{}) }

// Name is "verbs".
func (device) Name() string { return "verbs" }

// OnlyIfNamed returns nil for addresses on RDMA hardware. Software devices (rxe, siw) are slower than TCP.
func (device) OnlyIfNamed(local netip.Addr) error {
	switch networks := rnics.Networks(); {
	case len(networks) == 0:
		return errNoHardware
	case local.IsValid() && !rnics.Owns(networks, local.Unmap()):
		return fmt.Errorf("local address %v is not on RDMA hardware", local)
	}
	return nil
}

var errNoHardware = errors.New("no RDMA hardware: software devices are used only if verbs is named (SDP_DEVICES) or on network sdp")

const cmFile = "/dev/infiniband/rdma_cm"

// load opens the libraries, once.
var load = sync.OnceValue(func() error {
	if why := C.v_load(); why != nil {
		return errors.New(C.GoString(why))
	}
	return nil
})

// probed remembers for a moment what probe has found: every Dial needs it, and it takes many system
// calls.
var probed struct {
	mu    sync.Mutex
	until time.Time
	found error
}

// Probe returns nil if there is an RDMA device that this process may use. The result may be a second
// old.
func (device) Probe() error {
	probed.mu.Lock()
	defer probed.mu.Unlock()
	if now := time.Now(); now.After(probed.until) {
		probed.found, probed.until = probe(), now.Add(time.Second)
	}
	return probed.found
}

func probe() error {
	if err := load(); err != nil {
		return err
	}
	if err := sameCredentials(); err != nil {
		return err
	}
	switch n := C.v_devices(); {
	case n == -C.int(syscall.ENOSYS): // the kernel has no RDMA
		return errors.New("no RDMA device on this machine: the kernel module ib_uverbs is not loaded; modprobe ib_uverbs")
	case n < 0:
		return fmt.Errorf("list RDMA devices: %w", syscall.Errno(-n))
	case n == 0:
		return errors.New("no RDMA device on this machine; rdma link shows those that the kernel knows")
	}
	// librdmacm opens it when it is first used, and its error says only that this failed.
	f, err := os.OpenFile(cmFile, os.O_RDWR, 0)
	switch {
	case errors.Is(err, os.ErrPermission):
		return fmt.Errorf("no permission to use RDMA: %w; grant read and write access to /dev/infiniband/*", err)
	case err != nil:
		return fmt.Errorf("rdma_cm not available: %w; load the module rdma_ucm", err)
	}
	f.Close()
	if err := lockable(); err != nil {
		return err
	}
	// Whatever takes long the first time is done here, before there is a TCP connection: a client
	// that sends nothing while it opens its devices looks like a plain one.
	openDevices()
	return nil
}

// leastLocked is the least memory that a connection locks.
const leastLocked = leastRing + 64<<10

// lockable returns nil if this process may lock enough memory for a connection.
func lockable() error {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &limit); err != nil || limit.Cur >= leastLocked || locksAnything() {
		return nil
	}
	return fmt.Errorf("locked memory limited to %d KB (RLIMIT_MEMLOCK); set ulimit -l unlimited, or LimitMEMLOCK=infinity in the systemd unit", limit.Cur>>10)
}

// whyRegister explains why memory could not be registered.
func whyRegister(size int, errno C.int) error { return whyLocked(size, syscall.Errno(errno)) }

// whyPost returns why the device does not take receive buffers.
func whyPost(size int, errno C.int) error {
	if err := syscall.Errno(errno); err != syscall.ENOMEM {
		return fmt.Errorf("verbs: post receive buffers: %w", err)
	}
	return whyRegister(size, errno)
}

func whyLocked(size int, err error) error {
	if err == syscall.ENOMEM || err == syscall.EAGAIN || err == syscall.EPERM {
		return fmt.Errorf("verbs: lock %d KB of memory: %w; raise RLIMIT_MEMLOCK: ulimit -l, or LimitMEMLOCK in the systemd unit", size>>10, err)
	}
	return fmt.Errorf("verbs: register %d KB of memory: %w", size>>10, err)
}

// Reaches returns nil if the TCP connection is at an address of an RDMA device. Two ends on
// different fabrics notice it within Config.StepUpTimeout, when rdma_cm cannot resolve the address
// or the route.
func (device) Reaches(p rdma.Peer) error {
	if !p.Local.IsValid() || !p.Remote.IsValid() {
		return errors.New("connection without IP addresses")
	}
	e, err := acquire()
	if err != nil {
		return err
	}
	defer e.release()
	id, err := e.newID()
	if err != nil {
		return err
	}
	defer id.destroy()
	if err := id.bind(netip.AddrPortFrom(p.Local.Addr(), 0)); err != nil {
		return err
	}
	if id.c.verbs == nil {
		return fmt.Errorf("%v is not the address of an RDMA device", p.Local.Addr())
	}
	return nil
}

// Start limits what a connection promises and locks at first; see rdma.Dialler. A peer pins so much
// before the program knows who it is.
func (device) Start() (buffers, size int) { return startBuffers, startSize }

const (
	startBuffers = 16
	startSize    = 2 << 10
)

// Listen returns an end that accepts channels.
func (device) Listen(cfg rdma.ChannelConfig) (rdma.InviteListener, error) { return listen(cfg) }

// Dial opens a channel to an end that has invited this one.
func (device) Dial(ctx context.Context, a rdma.Address, cfg rdma.ChannelConfig, private []byte, settle func([]byte) (int, error)) (rdma.QueuePair, error) {
	q, err := join(ctx, a, cfg, private, settle)
	if err != nil {
		return nil, err
	}
	return q, nil
}
