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

// String returns the device's name in the registry of package rdma, "none", or
// "device 9" for a code of a later version.
func (d Device) String() string {
	switch d {
	case DeviceNone:
		return "none"
	case DeviceIWARP:
		return "iwarp"
	case DeviceVerbs:
		return "verbs"
	}
	return fmt.Sprintf("device %d", uint8(d))
}
