package wire

import (
	"encoding/binary"
	"net/netip"
)

// offersMagic begins the offers. A server that reads lines and does not know MPA finds the
// end of a line in it, and answers immediately instead of waiting for more.
const offersMagic = "\r\n\r\nSDP"

const (
	offersHeaderLen = len(offersMagic) + 2 // then version and length
	tupleLen        = 2 * endpointLen
	endpointLen     = 16 + 2
)

// The items of the offers.
const (
	offersDevices = 1
	offersTuple   = 3
	offersHost    = 8

	// 2 and 4 to 7 are reserved. Earlier versions used them for the host and its pid namespace, GIDs,
	// and channels in shared memory.
)

var offersItems = []string{
	offersDevices: "devices",
	offersTuple:   "tuple",
	offersHost:    "host",
}

// Offers precede the Hello in the private data of the client's MPA Request. They list the
// client's devices and what the server needs to choose one. They are this project's own.
type Offers struct {
	// Devices are the client's, at least one, the preferred one first. A server skips codes that
	// it does not know.
	Devices []Device
	// Host tells whether both ends are on one host, if HasHost.
	Host    HostID
	HasHost bool
	// Client and Server are the ends of the TCP connection as the client sees them. Both are
	// invalid if it does not say. IPv4 addresses are parsed as IPv4, however they were given.
	// Zones are left out, because they have a meaning on one host only. See SameTuple.
	Client, Server netip.AddrPort
}

// SameTuple reports whether the client named the ends of the TCP connection, and they are
// those that the server sees. Through a proxy, NAT or port forward they differ.
func (o *Offers) SameTuple(client, server netip.AddrPort) bool {
	return o.Client.IsValid() && bare(o.Client) == bare(client) && bare(o.Server) == bare(server)
}

// bare returns a without what is not sent: IPv4-mapped addresses as IPv4, and no zone.
func bare(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap().WithZone(""), a.Port())
}

// Append appends the offers. It returns an *Error if they name no device or only one end of
// the connection, or if a Hello after them would not fit into MaxPrivateData.
func (o *Offers) Append(b []byte) ([]byte, error) {
	switch {
	case len(o.Devices) == 0:
		return b, malformed("offers", "devices", "there are none")
	case o.Client.IsValid() != o.Server.IsValid():
		return b, malformed("offers", "tuple", "only one address is set")
	}
	length := o.length()
	if length > MaxPrivateData-HelloLen {
		return b, malformed("offers", "length", "%d bytes, at most %d fit", length, MaxPrivateData-HelloLen)
	}
	b = append(b, offersMagic...)
	b = append(b, Version, byte(length))
	devices := make([]byte, len(o.Devices))
	for i, d := range o.Devices {
		devices[i] = byte(d)
	}
	b = appendItem(b, offersDevices, devices)
	if o.Client.IsValid() {
		b = appendItem(b, offersTuple, endpoint(o.Client), endpoint(o.Server))
	}
	if o.HasHost {
		b = appendItem(b, offersHost, o.Host.Salt[:], o.Host.Proof[:])
	}
	return b, nil
}

// length returns how many bytes Append appends.
func (o *Offers) length() int {
	n := offersHeaderLen + 2 + len(o.Devices)
	if o.HasHost {
		n += 2 + hostIDLen
	}
	if o.Client.IsValid() {
		n += 2 + tupleLen
	}
	return n
}

// ParseOffers reads the offers at the start of b, the private data of an MPA Request. rest is
// what follows them: the Hello. Malformed offers, and those of another version, are an
// *Error; see OtherVersion.
func ParseOffers(b []byte) (o Offers, rest []byte, err error) {
	if len(b) < offersHeaderLen || string(b[:len(offersMagic)]) != offersMagic {
		return Offers{}, nil, malformed("offers", "magic", "is missing")
	}
	if v := b[len(offersMagic)]; v != Version {
		return Offers{}, nil, malformed("offers", "version", "is %d, expected %d", v, Version)
	}
	length := int(b[len(offersMagic)+1])
	if length < offersHeaderLen || length > len(b) {
		return Offers{}, nil, malformed("offers", "length", "is %d in %d bytes", length, len(b))
	}
	if err := walkItems("offers", b[offersHeaderLen:length], offersItems, o.take); err != nil {
		return Offers{}, nil, err
	}
	if o.Devices == nil {
		return Offers{}, nil, malformed("offers", "devices", "are missing")
	}
	return o, b[length:], nil
}

// OtherVersion returns the version of the offers at the start of b if it is not Version.
func OtherVersion(b []byte) (v int, ok bool) {
	if len(b) < offersHeaderLen || string(b[:len(offersMagic)]) != offersMagic {
		return 0, false
	}
	v = int(b[len(offersMagic)])
	return v, v != Version
}

func (o *Offers) take(item byte, value []byte) error {
	switch item {
	case offersDevices:
		if len(value) == 0 {
			return malformed("offers", "devices", "there are none")
		}
		for _, d := range value {
			o.Devices = append(o.Devices, Device(d))
		}
	case offersHost:
		if len(value) != hostIDLen {
			return malformed("offers", "host", "has %d bytes, not %d", len(value), hostIDLen)
		}
		o.HasHost = true
		copy(o.Host.Salt[:], value)
		copy(o.Host.Proof[:], value[saltLen:])
	case offersTuple:
		if len(value) != tupleLen {
			return malformed("offers", "tuple", "has %d bytes, not %d", len(value), tupleLen)
		}
		o.Client, o.Server = parseEndpoint(value), parseEndpoint(value[endpointLen:])
	}
	return nil
}

// endpoint returns the address, IPv4 mapped into IPv6, and the port.
func endpoint(a netip.AddrPort) []byte {
	ip := a.Addr().As16()
	return binary.BigEndian.AppendUint16(ip[:], a.Port())
}

func parseEndpoint(b []byte) netip.AddrPort {
	ip := netip.AddrFrom16([16]byte(b))
	return netip.AddrPortFrom(ip.Unmap(), binary.BigEndian.Uint16(b[16:]))
}
