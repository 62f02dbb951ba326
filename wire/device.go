package wire

import "fmt"

// Device is the code by which offers and choice name an RDMA device. Ours.
type Device uint8

const (
	DeviceNone  Device = 0 // in a choice: none, the connection is refused
	DeviceIWARP Device = 1 // the TCP connection itself is the channel
	DeviceVerbs Device = 3 // an RDMA NIC, through rdma_cm
	// DeviceSHM is shared memory, between two programs on one host. A layout of that
	// memory that older programs do not know has a code of its own; 2, 4 and 5 were earlier ones.
	DeviceSHM Device = 6
)

// String returns the device's name in the registry of package rdma, "none", or
// "device 9" for a code of a later version.
func (d Device) String() string {
	switch d {
	case DeviceNone:
		return "none"
	case DeviceIWARP:
		return "iwarp"
	case DeviceSHM:
		return "shm"
	case DeviceVerbs:
		return "verbs"
	}
	return fmt.Sprintf("device %d", uint8(d))
}
