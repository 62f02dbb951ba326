package sdp

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/gosdp/gosdp/internal/rnics"
	"github.com/gosdp/gosdp/rdma"
	_ "github.com/gosdp/gosdp/rdma/iwarp" // the device that everyone has
	"github.com/gosdp/gosdp/wire"
)

// knownDevices are those that offers can name, the best one first: on one host
// nothing is faster than memory.
var knownDevices = []wire.Device{wire.DeviceSHM, wire.DeviceVerbs, wire.DeviceIWARP}

// devicePlain alone in a list of devices switches SDP off.
const devicePlain = "tcp"

// devices are what a Dial or a Listen may use.
type devices struct {
	usable   []wire.Device // the best one first
	declined reasons       // why each of the rest is not
	tuning   tuning
	// named: they were listed, or the network is one of SDP's: then whatever works is
	// used. Otherwise what is faster than TCP.
	named bool
	// probe are the addresses that may be asked; nil: those of the subnets of RDMA
	// hardware.
	probe []netip.Prefix
	meeting
}

// tuning is what the Config or the environment says of how a connection works; what is 0 is
// for the device to say.
type tuning struct {
	threshold int           // ZCopyThreshold
	busyPoll  time.Duration // BusyPoll
	window    int           // ReadBuffer
}

// devices finds out which devices to use: those of the program's list, of the
// environment's if it has none, or the defaults, which are all if the program asks for
// SDP. It fails if a list makes no sense, the
// environment's even where it does not matter, so that whoever has set it learns
// of it.
func (c *Config) devices(asked bool) (devices, error) {
	var program []string
	if c != nil {
		program = c.Devices
	}
	listed, source, err := listedDevices(program)
	if err != nil {
		return devices{}, err
	}
	d := devices{named: asked || source != ""}
	if d.tuning.threshold, err = c.threshold(); err != nil {
		return devices{}, err
	}
	if d.tuning.busyPoll, err = c.busyPoll(); err != nil {
		return devices{}, err
	}
	if c != nil {
		d.tuning.window = c.ReadBuffer
	}
	if d.probe, err = c.probe(); err != nil {
		return devices{}, err
	}
	if err = c.setMemory(); err != nil {
		return devices{}, err
	}
	if d.meeting, err = c.meeting(); err != nil {
		return devices{}, err
	}
	for _, device := range listed {
		if err := d.usableHere(device); err != nil {
			d.declined.set(device.String(), err.Error())
			continue
		}
		d.usable = append(d.usable, device)
	}
	for _, device := range knownDevices {
		if !slices.Contains(listed, device) {
			d.declined.set(device.String(), "not in "+source)
		}
	}
	return d, nil
}

// usableHere returns nil if this program has the device, can use it here, and gains by
// that.
func (d *devices) usableHere(device wire.Device) error {
	switch {
	case d.named:
	case device == wire.DeviceIWARP:
		return errors.New("slower than TCP, and so used only if it is named, or on network sdp")
	case device == wire.DeviceVerbs && len(rnics.Networks()) == 0:
		return errors.New("there is no RDMA hardware; software devices are used only if verbs is named, or on network sdp")
	}
	return probe(device)
}

// worthAt returns nil if the device is worth using on a connection whose address at this
// end is local.
func (d *devices) worthAt(device wire.Device, local netip.Addr) error {
	if !d.named && device == wire.DeviceVerbs && !rnics.Owns(rnics.Networks(), local.Unmap()) {
		return fmt.Errorf("%v is not the address of RDMA hardware", local)
	}
	return nil
}

// mayAsk reports that the host at remote may be asked from local whether it speaks SDP:
// it is allowed, and there is a device that gets there.
func (d *devices) mayAsk(local, remote netip.Addr) bool {
	if d.meets() && rnics.Contain(d.probe, remote) {
		return true // it may be another container of this host, behind a service's address
	}
	networks := rnics.Networks()
	if d.probe == nil {
		return rnics.Owns(networks, local) && rnics.Contain(networks, remote)
	}
	return rnics.Contain(d.probe, remote) && (rnics.Owns(networks, local) ||
		d.named && slices.ContainsFunc(d.usable, func(u wire.Device) bool { return u != wire.DeviceSHM }))
}

// zeroCopy reports that the program or the environment asks for zero copy: a device
// that copies better by itself is to be ready for it.
func (d *devices) zeroCopy() bool { return d.tuning.threshold > 0 }

// why is the error that no device can be used, which names each and its reason.
func (d *devices) why() error { return d.declined.err() }

// reasons say of devices why they are not used. Every connection keeps some: two
// or three in a slice are a tenth of what a map takes.
type reasons []reason

type reason struct{ device, why string }

// set says why a device is not used, in place of what was said before.
func (r *reasons) set(device, why string) {
	for i := range *r {
		if (*r)[i].device == device {
			(*r)[i].why = why
			return
		}
	}
	*r = append(*r, reason{device, why})
}

// of returns why a device is not used, "" if nothing is said of it.
func (r reasons) of(device string) string {
	for i := range r {
		if r[i].device == device {
			return r[i].why
		}
	}
	return ""
}

// table is what Stats shows.
func (r reasons) table() map[string]string {
	t := make(map[string]string, len(r))
	for _, of := range r {
		t[of.device] = of.why
	}
	return t
}

// err is the error that no device can be used.
func (r reasons) err() error {
	declined := r.table()
	text, between := "no RDMA device can be used", ": "
	for _, device := range knownDevices {
		if reason, ok := declined[device.String()]; ok {
			text += between + device.String() + ": " + reason
			between = "; "
		}
	}
	return errors.New(text)
}

// listedDevices returns the devices that may be used, and what lists them.
func listedDevices(program []string) (listed []wire.Device, source string, err error) {
	listed = knownDevices // and no source is ever named
	if text := getenv(devicesVariable); text != "" {
		source = devicesVariable + "=" + text
		listed, err = parseDevices(strings.Split(text, ","))
		if err != nil {
			return nil, "", fmt.Errorf("%s: %w", source, err)
		}
	}
	if program != nil {
		source = "Config.Devices"
		listed, err = parseDevices(program)
		if err != nil {
			return nil, "", fmt.Errorf("%s: %w", source, err)
		}
	}
	return listed, source, nil
}

func parseDevices(names []string) ([]wire.Device, error) {
	var listed []wire.Device
	for _, name := range names {
		name = strings.TrimSpace(name)
		if name == devicePlain {
			if len(names) > 1 {
				return nil, errors.New(`"tcp" switches SDP off and stands alone`)
			}
			return nil, nil
		}
		i := slices.IndexFunc(knownDevices, func(d wire.Device) bool { return d.String() == name })
		if i < 0 {
			return nil, fmt.Errorf("unknown device %q", name)
		}
		if slices.Contains(listed, knownDevices[i]) {
			return nil, fmt.Errorf("device %q is there twice", name)
		}
		listed = append(listed, knownDevices[i])
	}
	return listed, nil
}

// probe returns nil if this program has the device and can use it here.
func probe(device wire.Device) error {
	d, ok := rdma.LookupDevice(device.String())
	if !ok {
		return errors.New("not in this program")
	}
	return d.Probe()
}
