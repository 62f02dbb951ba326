package policy

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"

	"github.com/gosdp/gosdp/internal/events"
	"github.com/gosdp/gosdp/internal/rnics"
	"github.com/gosdp/gosdp/rdma"
	_ "github.com/gosdp/gosdp/rdma/iwarp" // the device that everyone has
	"github.com/gosdp/gosdp/wire"
)

// deviceTCP alone in a list of devices switches SDP off.
const deviceTCP = "tcp"

// deviceSHM is shared memory, the device between two programs of one host. It is no RDMA device.
const deviceSHM = "shm"

// find fills in Devices and Declined: of the list, what works here.
func (p *Policy) find(list deviceList) {
	for _, device := range list.devices {
		if err := p.usableHere(device); err != nil {
			p.Declined.Set(device, err.Error())
			continue
		}
		p.Devices = append(p.Devices, device)
	}
	for _, known := range wire.KnownDevices {
		if !slices.Contains(list.devices, known.Device) {
			p.Declined.Set(known.Device, "not in "+list.source)
		}
	}
}

// usableHere returns nil if this program has the device, can use it here, and gains by it.
func (p *Policy) usableHere(device wire.Device) error {
	has, ok := rdma.LookupDevice(device.String())
	if !ok {
		return errors.New("not compiled into this program")
	}
	if err := p.worth(has, netip.Addr{}); err != nil {
		return err
	}
	err := has.Probe()
	if err != nil {
		p.noteUnusable(has, err)
	}
	return err
}

// noteUnusable logs why a device cannot be used, once for each reason and minute. That the machine has no
// RDMA hardware is no news, unless somebody has named the device.
func (p *Policy) noteUnusable(device rdma.Device, err error) {
	if !p.Listed && device.OnlyIfNamed(netip.Addr{}) != nil {
		return
	}
	events.Process.Log(p.Logger, slog.LevelInfo, device.Name()+err.Error(),
		"sdp: RDMA device unusable on this machine", "device", device.Name(), "reason", err)
}

// Worth returns nil if the device is worth using on a connection whose address at this
// end is local.
func (p *Policy) Worth(device wire.Device, local netip.Addr) error {
	has, _ := rdma.LookupDevice(device.String())
	return p.worth(has, local)
}

func (p *Policy) worth(device rdma.Device, local netip.Addr) error {
	if p.named {
		return nil
	}
	return device.OnlyIfNamed(local)
}

// MayAsk reports whether the host at remote may be asked from local if it speaks SDP: that is
// allowed, and a device reaches it.
func (p *Policy) MayAsk(local, remote netip.Addr) bool {
	return rnics.Contain(p.probe, remote) &&
		(p.named && len(p.Devices) > 0 || rnics.Owns(rnics.Networks(), local))
}

// A deviceList is a list of devices that may be used.
type deviceList struct {
	shm     bool          // it has shared memory
	devices []wire.Device // of RDMA
	source  string        // where it is; "": nobody has made one, so it has all
}

// devices returns the program's list, or else that of the environment.
func (o *Options) devices() (list deviceList, err error) {
	list.shm = true
	for _, known := range wire.KnownDevices {
		list.devices = append(list.devices, known.Device)
	}
	if text := Getenv(devicesVariable); text != "" {
		if list, err = parseDevices(devicesVariable+"="+text, strings.Split(text, ",")); err != nil {
			return deviceList{}, err
		}
	}
	if o.listsDevices() {
		return parseDevices("Config.Devices", o.Devices)
	}
	return list, nil
}

// listsDevices reports whether the program has decided itself which devices are used.
func (o *Options) listsDevices() bool { return o != nil && len(o.Devices) > 0 }

func parseDevices(source string, names []string) (deviceList, error) {
	list := deviceList{source: source}
	for _, name := range names {
		name = strings.TrimSpace(name)
		i := slices.IndexFunc(wire.KnownDevices, func(d wire.KnownDevice) bool { return d.Name == name })
		switch {
		case name == deviceTCP && len(names) > 1:
			return deviceList{}, fmt.Errorf(`%s: "tcp" disables SDP and cannot be combined with devices`, source)
		case name == deviceTCP:
			return list, nil
		case name == deviceSHM && list.shm, i >= 0 && slices.Contains(list.devices, wire.KnownDevices[i].Device):
			return deviceList{}, fmt.Errorf("%s: device %q is listed twice", source, name)
		case name == deviceSHM:
			list.shm = true
		case i < 0:
			return deviceList{}, fmt.Errorf("%s: unknown device %q", source, name)
		default:
			list.devices = append(list.devices, wire.KnownDevices[i].Device)
		}
	}
	return list, nil
}
