package wire

import "fmt"

// Device is the code of an RDMA device in offers and in the choice. It is this project's own.
type Device uint8

const (
	DeviceNone  Device = 0 // in a choice: a rejection
	DeviceIWARP Device = 1 // the TCP connection itself is the channel
	DeviceVerbs Device = 3 // an RDMA NIC, through rdma_cm

	// 2 and 4 to 7 are reserved. Earlier versions used them for shared memory.
)

// A KnownDevice is a device that offers can name, with its name in the registry of package rdma.
type KnownDevice struct {
	Device
	Name string
}

// KnownDevices has the devices of this version, the best one first, whether a program has them or not.
var KnownDevices = []KnownDevice{{DeviceVerbs, "verbs"}, {DeviceIWARP, "iwarp"}}

// String returns the device's name in KnownDevices, "none", or "device 9" for a code of a later version.
func (d Device) String() string {
	for _, known := range KnownDevices {
		if known.Device == d {
			return known.Name
		}
	}
	if d == DeviceNone {
		return "none"
	}
	return fmt.Sprintf("device %d", uint8(d))
}
