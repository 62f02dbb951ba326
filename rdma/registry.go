package rdma

import (
	"net/netip"
	"sync"
)

// Device is a kind of RNIC that this program has. An implementation embeds [BaseDevice]. All methods
// are safe for concurrent use.
type Device interface {
	// Name returns the name in Config and SDP_DEVICES: "iwarp", "verbs".
	Name() string
	// Probe returns nil if the device can be used on this machine, and otherwise
	// why it cannot.
	Probe() error
	// OnlyIfNamed returns why a connection from a local address uses the device only if that is named
	// (Config.Devices, SDP_DEVICES), or on network "sdp"; nil: also by default. If the address is
	// invalid, that is so for every address of this machine.
	OnlyIfNamed(local netip.Addr) error
	// Pinned returns how many bytes of memory this process has locked, by the name of the
	// hardware's device.
	Pinned() map[string]int64
}

var registry struct {
	sync.RWMutex
	byName map[string]Device
}

// RegisterDevice adds a device. It must be called in the init function of the device's package,
// and panics if the name is taken.
func RegisterDevice(d Device) {
	registry.Lock()
	defer registry.Unlock()
	if _, taken := registry.byName[d.Name()]; taken {
		panic("rdma: device " + d.Name() + " registered twice")
	}
	if registry.byName == nil {
		registry.byName = make(map[string]Device)
	}
	registry.byName[d.Name()] = d
}

// LookupDevice returns the device with a name, if this program has it. It is safe for
// concurrent use.
func LookupDevice(name string) (Device, bool) {
	registry.RLock()
	defer registry.RUnlock()
	d, ok := registry.byName[name]
	return d, ok
}
