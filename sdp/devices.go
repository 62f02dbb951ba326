package sdp

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/gosdp/gosdp/rdma"
	_ "github.com/gosdp/gosdp/rdma/iwarp" // the device that everyone has
	"github.com/gosdp/gosdp/wire"
)

// knownDevices are those that offers can name, the best one first: on one host
// nothing is faster than memory.
var knownDevices = []wire.Device{wire.DeviceSHM, wire.DeviceVerbs, wire.DeviceIWARP}

const (
	devicesVariable   = "SDP_DEVICES"
	thresholdVariable = "SDP_ZCOPY_THRESHOLD"
	// devicePlain alone in a list of devices switches SDP off.
	devicePlain = "tcp"
)

// devices are what a Dial or a Listen may use.
type devices struct {
	usable   []wire.Device // the best one first
	declined reasons       // why each of the rest is not
	// threshold is the Config's ZCopyThreshold or the environment's; 0: the
	// device's own.
	threshold int
}

// devices finds out which devices to use: those of the program's list, of the
// environment's if it has none, or all. It fails if a list makes no sense, the
// environment's even where it does not matter, so that whoever has set it learns
// of it.
func (c *Config) devices() (devices, error) {
	var program []string
	if c != nil {
		program = c.Devices
	}
	listed, source, err := listedDevices(program)
	if err != nil {
		return devices{}, err
	}
	threshold, err := c.threshold()
	if err != nil {
		return devices{}, err
	}
	d := devices{threshold: threshold}
	for _, device := range listed {
		if err := probe(device); err != nil {
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

// threshold returns from how many bytes a Write is not copied; 0: from what the
// device says.
func (c *Config) threshold() (int, error) {
	environment := 0
	if text := os.Getenv(thresholdVariable); text != "" {
		var err error
		if environment, err = strconv.Atoi(text); err != nil {
			return 0, fmt.Errorf("%s=%s: not a number of bytes", thresholdVariable, text)
		}
	}
	if c != nil && c.ZCopyThreshold != 0 {
		return c.ZCopyThreshold, nil
	}
	return environment, nil
}

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
	if text := os.Getenv(devicesVariable); text != "" {
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
