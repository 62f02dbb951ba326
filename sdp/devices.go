package sdp

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/gosdp/gosdp/internal/handshake"
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
	d := devices{shm: shm && haveSHM, named: asked || source != "", listed: source != ""}
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
	serveIfAsked(d.tuning.logger)
	dumpIfAsked(d.tuning.logger)
	for _, device := range listed {
		if err := d.usableHere(device); err != nil {
			d.declined.Set(device, err.Error())
			c.noteUnusable(device, err)
			continue
		}
		d.usable = append(d.usable, device)
	}
	for _, device := range handshake.KnownDevices {
		if !slices.Contains(listed, device) {
			d.declined.Set(device, "not in "+source)
		}
	}
	return d, nil
}

// usableHere returns nil if this program has the device, can use it here, and gains by it.
func (d *devices) usableHere(device wire.Device) error {
	switch {
	case d.named:
	case device == wire.DeviceIWARP:
		return errors.New("slower than TCP: used only if named (SDP_DEVICES) or on network sdp")
	case device == wire.DeviceVerbs && len(rnics.Networks()) == 0:
		return errors.New("no RDMA hardware: software devices are used only if verbs is named (SDP_DEVICES) or on network sdp")
	}
	return probe(device)
}

// worthAt returns nil if the device is worth using on a connection whose address at this
// end is local.
func (d *devices) worthAt(device wire.Device, local netip.Addr) error {
	if !d.named && device == wire.DeviceVerbs && !rnics.Owns(rnics.Networks(), local.Unmap()) {
		return fmt.Errorf("local address %v is not on RDMA hardware", local)
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
	shm, listed = true, handshake.KnownDevices // and no source is ever named
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

// off reports whether the program or the environment switches SDP off.
func (c *Config) off() bool {
	var program []string
	if c != nil {
		program = c.Devices
	}
	shm, listed, _, err := listedDevices(program)
	return err == nil && !shm && len(listed) == 0
}

func parseDevices(names []string) (shm bool, listed []wire.Device, err error) {
	for _, name := range names {
		name = strings.TrimSpace(name)
		i := slices.IndexFunc(handshake.KnownDevices, func(d wire.Device) bool { return d.String() == name })
		switch {
		case name == devicePlain && len(names) > 1:
			return false, nil, errors.New(`"tcp" disables SDP and cannot be combined with devices`)
		case name == devicePlain:
			return false, nil, nil
		case name == deviceSHM && shm, i >= 0 && slices.Contains(listed, handshake.KnownDevices[i]):
			return false, nil, fmt.Errorf("device %q is listed twice", name)
		case name == deviceSHM:
			shm = true
		case i < 0:
			return false, nil, fmt.Errorf("unknown device %q", name)
		default:
			listed = append(listed, handshake.KnownDevices[i])
		}
	}
	return shm, listed, nil
}

// probe returns nil if this program has the device and can use it here.
func probe(device wire.Device) error {
	d, ok := rdma.LookupDevice(device.String())
	if !ok {
		return errors.New("not compiled into this program")
	}
	return d.Probe()
}
