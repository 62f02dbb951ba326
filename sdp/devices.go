package sdp

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/gosdp/gosdp/rdma"
	_ "github.com/gosdp/gosdp/rdma/iwarp" // the device that everyone has
	"github.com/gosdp/gosdp/wire"
)

// knownDevices are those that offers can name, the best one first.
var knownDevices = []wire.Device{wire.DeviceVerbs, wire.DeviceSHM, wire.DeviceIWARP}

const (
	devicesVariable = "SDP_DEVICES"
	// devicePlain alone in a list of devices switches SDP off.
	devicePlain = "tcp"
)

// devices are what a Dial or a Listen may use.
type devices struct {
	usable []wire.Device // the best one first
	why    error         // why each of the rest is not
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
	var d devices
	var why []error
	for _, device := range listed {
		if err := probe(device); err != nil {
			why = append(why, fmt.Errorf("%v: %w", device, err))
			continue
		}
		d.usable = append(d.usable, device)
	}
	for _, device := range knownDevices {
		if !slices.Contains(listed, device) {
			why = append(why, fmt.Errorf("%v: not in %s", device, source))
		}
	}
	d.why = &noDeviceError{why}
	return d, nil
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

// noDeviceError says of each device why it cannot be used.
type noDeviceError struct{ why []error }

func (e *noDeviceError) Error() string {
	var b strings.Builder
	b.WriteString("no RDMA device can be used")
	for i, err := range e.why {
		b.WriteString([]string{": ", "; "}[min(i, 1)])
		b.WriteString(err.Error())
	}
	return b.String()
}

func (e *noDeviceError) Unwrap() []error { return e.why }
