// Package diagnose finds out what is faster than TCP on this machine, or on the way to an address, and
// why something is not. "sdp check" prints its results.
package diagnose

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/gosdp/gosdp/internal/policy"
	"github.com/gosdp/gosdp/rdma"
	"github.com/gosdp/gosdp/sdp"
	"github.com/gosdp/gosdp/wire"
)

// A Machine describes what SDP can use on this machine.
type Machine struct {
	// Off is the reason why SDP is off for network "tcp"; "" if it is on.
	Off string `json:"off,omitempty"`
	// Invalid is the error with which every Dial and Listen fails, because a variable of the
	// environment is invalid; "" if none is.
	Invalid  string   `json:"invalid,omitempty"`
	Devices  []Device `json:"devices"`
	Settings []string `json:"settings"` // the environment's
	// Rules is the file that SDP_CONFIG names; nil: it names none.
	Rules *Rules `json:"rules,omitempty"`
}

// A Device is one of SDP's devices.
type Device struct {
	Name string `json:"name"`
	// Usable reports whether this program can use the device here, and Default whether it
	// does so on network "tcp" by default.
	Usable  bool   `json:"usable"`
	Default bool   `json:"default"`
	Reason  string `json:"reason,omitempty"` // why not
	// OnlyIfNamed says that the device is not used here unless somebody names it. What it lacks is then no fault.
	OnlyIfNamed bool   `json:"only_if_named,omitempty"`
	Needs       []Need `json:"needs"`
}

// A Need is something that a device needs, or works better with.
type Need struct {
	Name string `json:"name"`
	OK   bool   `json:"ok"`
	// Optional needs are for something that the device can do without.
	Optional bool   `json:"optional,omitempty"`
	Found    string `json:"found"`            // what there is
	Advice   string `json:"advice,omitempty"` // what to do if that is not enough
}

// Usable reports whether a device is used on network "tcp".
func (m *Machine) Usable() bool {
	return m.Off == "" && m.Invalid == "" && slices.ContainsFunc(m.Devices, func(d Device) bool { return d.Default })
}

// device returns the device of a name.
func (m *Machine) device(name string) Device {
	return m.Devices[slices.Index(names(), name)]
}

// shm is the name of shared memory, which is no RDMA device.
const shm = "shm"

// names returns the devices, the best one first.
func names() []string {
	all := []string{shm}
	for _, known := range wire.KnownDevices {
		all = append(all, known.Name)
	}
	return all
}

// Inspect examines this machine, with the rights of this process.
func Inspect() *Machine {
	m := inspect("/", os.Getenv)
	if len(m.Settings) > 0 {
		m.Invalid = invalid()
	}
	return m
}

// invalid returns the error of a Dial that ends before it connects, unless that is the reason, or a
// rule that asks for SDP where no device can be used.
func invalid() string {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := new(sdp.Dialer).DialContext(ctx, "tcp", "127.0.0.1:1")
	var op *net.OpError
	if errors.Is(err, context.Canceled) || lacksDevice(err) || !errors.As(err, &op) {
		return ""
	}
	return op.Err.Error()
}

// inspect acts like Inspect for files below root.
func inspect(root string, getenv func(string) string) *Machine {
	m := &Machine{Settings: []string{}}
	for _, name := range policy.Variables {
		if value := getenv(name); value != "" {
			m.Settings = append(m.Settings, name+"="+value)
		}
	}
	m.Rules = readRules(getenv("SDP_CONFIG"))
	var listed []string // by SDP_DEVICES; nil: it says nothing
	if text := getenv("SDP_DEVICES"); text != "" {
		for _, name := range strings.Split(text, ",") {
			listed = append(listed, strings.TrimSpace(name))
		}
	}
	if slices.Equal(listed, []string{"tcp"}) {
		m.Off = "SDP_DEVICES=tcp switches SDP off"
	}
	for _, name := range names() {
		m.Devices = append(m.Devices, inspectDevice(root, name, listed, getenv))
	}
	return m
}

func inspectDevice(root, name string, listed []string, getenv func(string) string) Device {
	d := Device{Name: name, Needs: []Need{}}
	switch name {
	case shm:
		d.Needs = append(d.Needs, memoryNeeds(root, getenv)...)
	case wire.DeviceVerbs.String():
		d.Needs = hardwareNeeds(root)
	}
	err, reason := d.probe()
	d.OnlyIfNamed = reason != nil && !slices.Contains(listed, name)
	switch d.Usable = err == nil; {
	case err != nil:
		d.Reason = err.Error()
	case listed != nil && !slices.Contains(listed, name):
		d.Reason = "not in SDP_DEVICES=" + strings.Join(listed, ",")
	case listed == nil && reason != nil:
		d.Reason = reason.Error()
	default:
		d.Default = true
	}
	return d
}

// probe returns why this program cannot use the device here, or else why it does so only if the device is named.
func (d *Device) probe() (unusable, onlyIfNamed error) {
	if d.Name == shm {
		return sharesMemory(), nil
	}
	device, ok := rdma.LookupDevice(d.Name)
	if !ok {
		return errors.New("not compiled into this program"), nil
	}
	return device.Probe(), device.OnlyIfNamed(netip.Addr{})
}
