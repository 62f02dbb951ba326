package sdp

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/gosdp/gosdp/internal/events"
	"github.com/gosdp/gosdp/internal/handshake"
	"github.com/gosdp/gosdp/internal/observe"
	"github.com/gosdp/gosdp/internal/rnics"
	"github.com/gosdp/gosdp/rdma"
	_ "github.com/gosdp/gosdp/rdma/iwarp" // the device that everyone has
	"github.com/gosdp/gosdp/wire"
)

// devicePlain alone in a list of devices switches SDP off.
const devicePlain = "tcp"

// deviceSHM is shared memory, the device between two programs of one host. It is no RDMA device.
const deviceSHM = "shm"

// devices are what a Dial or a Listen may use.
type devices struct {
	shm      bool              // shared memory
	usable   []wire.Device     // RDMA devices, the best one first
	declined handshake.Reasons // why each of the rest is not
	tuning   tuning
	// named says that the devices were listed, or that the network is one of SDP's: then every
	// device that works is used, and otherwise those that are faster than TCP.
	named  bool
	listed bool // they were listed
	off    bool // the list has none
	// probe are the addresses that may be asked.
	probe []netip.Prefix
	dir   string // where containers meet; "": nowhere
	uids  []int  // whose programs may share memory with this one

	handshakeTimeout time.Duration
}

// tuning is what the Config or the environment says of how a connection works. Zero values
// leave it to the device.
type tuning struct {
	threshold int           // ZCopyThreshold
	busyPoll  time.Duration // BusyPoll
	window    int           // ReadBuffer
	logger    *slog.Logger  // Logger
}

// devices finds out which devices to use: those that the program lists, or else those that
// the environment lists, or else the defaults, which are all if the program asked for SDP. It
// fails if a list is malformed, even if the other one would be used, so that the mistake is
// found.
func (c *Config) devices(asked bool) (devices, error) {
	var program []string
	if c != nil {
		program = c.Devices
	}
	shm, listed, source, err := listedDevices(program)
	if err != nil {
		return devices{}, err
	}
	d := devices{shm: shm && haveSHM, named: asked || source != "", listed: source != "", off: !shm && len(listed) == 0}
	if d.tuning.threshold, err = c.threshold(); err != nil {
		return devices{}, err
	}
	if d.tuning.busyPoll, err = c.busyPoll(); err != nil {
		return devices{}, err
	}
	if c != nil {
		d.tuning.window, d.tuning.logger = c.ReadBuffer, c.Logger
	}
	if d.probe, err = c.probe(); err != nil {
		return devices{}, err
	}
	if err = c.setMemory(); err != nil {
		return devices{}, err
	}
	if d.dir, err = c.directory(); err != nil {
		return devices{}, err
	}
	if d.handshakeTimeout, err = c.handshakeTimeout(); err != nil {
		return devices{}, err
	}
	if d.uids, err = c.peerUIDs(); err != nil {
		return devices{}, err
	}
	nameUnknown(d.tuning.logger)
	observe.ServeIfAsked(d.tuning.logger)
	observe.DumpIfAsked(d.tuning.logger)
	for _, device := range listed {
		if err := d.usableHere(device); err != nil {
			d.declined.Set(device, err.Error())
			continue
		}
		d.usable = append(d.usable, device)
	}
	for _, known := range wire.KnownDevices {
		if !slices.Contains(listed, known.Device) {
			d.declined.Set(known.Device, "not in "+source)
		}
	}
	return d, nil
}

// usableHere returns nil if this program has the device, can use it here, and gains by it.
func (d *devices) usableHere(device wire.Device) error {
	has, ok := rdma.LookupDevice(device.String())
	if !ok {
		return errors.New("not compiled into this program")
	}
	if err := d.worth(has, netip.Addr{}); err != nil {
		return err
	}
	err := has.Probe()
	if err != nil {
		d.noteUnusable(has, err)
	}
	return err
}

// noteUnusable logs why a device cannot be used, once for each reason and minute. That the machine has no
// RDMA hardware is no news, unless somebody has named the device.
func (d *devices) noteUnusable(device rdma.Device, err error) {
	if named, ok := device.(rdma.Named); ok && !d.listed && named.OnlyIfNamed(netip.Addr{}) != nil {
		return
	}
	events.Process.Log(d.tuning.logger, slog.LevelInfo, device.Name()+err.Error(),
		"sdp: RDMA device unusable on this machine", "device", device.Name(), "reason", err)
}

// worthAt returns nil if the device is worth using on a connection whose address at this
// end is local.
func (d *devices) worthAt(device wire.Device, local netip.Addr) error {
	has, _ := rdma.LookupDevice(device.String())
	return d.worth(has, local)
}

func (d *devices) worth(device rdma.Device, local netip.Addr) error {
	if named, ok := device.(rdma.Named); ok && !d.named {
		return named.OnlyIfNamed(local)
	}
	return nil
}

// mayAsk reports whether the host at remote may be asked from local if it speaks SDP: that is
// allowed, and a device reaches it.
func (d *devices) mayAsk(local, remote netip.Addr) bool {
	return rnics.Contain(d.probe, remote) &&
		(d.named && len(d.usable) > 0 || rnics.Owns(rnics.Networks(), local))
}

// listedDevices returns the devices that may be used, and where they are listed.
func listedDevices(program []string) (shm bool, listed []wire.Device, source string, err error) {
	shm = true
	for _, known := range wire.KnownDevices { // and no source is ever named
		listed = append(listed, known.Device)
	}
	if text := getenv(devicesVariable); text != "" {
		source = devicesVariable + "=" + text
		shm, listed, err = parseDevices(strings.Split(text, ","))
		if err != nil {
			return false, nil, "", fmt.Errorf("%s: %w", source, err)
		}
	}
	if program != nil {
		source = "Config.Devices"
		shm, listed, err = parseDevices(program)
		if err != nil {
			return false, nil, "", fmt.Errorf("%s: %w", source, err)
		}
	}
	return shm, listed, source, nil
}

func parseDevices(names []string) (shm bool, listed []wire.Device, err error) {
	for _, name := range names {
		name = strings.TrimSpace(name)
		i := slices.IndexFunc(wire.KnownDevices, func(d wire.KnownDevice) bool { return d.Name == name })
		switch {
		case name == devicePlain && len(names) > 1:
			return false, nil, errors.New(`"tcp" disables SDP and cannot be combined with devices`)
		case name == devicePlain:
			return false, nil, nil
		case name == deviceSHM && shm, i >= 0 && slices.Contains(listed, wire.KnownDevices[i].Device):
			return false, nil, fmt.Errorf("device %q is listed twice", name)
		case name == deviceSHM:
			shm = true
		case i < 0:
			return false, nil, fmt.Errorf("unknown device %q", name)
		default:
			listed = append(listed, wire.KnownDevices[i].Device)
		}
	}
	return shm, listed, nil
}
