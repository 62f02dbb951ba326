package wire

import "encoding/binary"

const (
	choiceMagic     = "SDP"
	choiceHeaderLen = len(choiceMagic) + 3 // then version, length and device
	tokenLen        = 16
)

// The items of the choice.
const (
	choiceToken = 1
	choicePort  = 3
	choiceStay  = 5

	// 2 and 4 are reserved. Earlier versions used them for shared memory.
)

var choiceItems = []string{
	choiceToken: "token",
	choicePort:  "port",
	choiceStay:  "stay",
}

// Choice precedes the HelloAck in the private data of the server's MPA Reply. It names the
// device that the server has chosen, and where the client finds the channel. A rejection has no
// HelloAck. It is this project's own.
type Choice struct {
	// Device is the chosen device. DeviceIWARP stays on the TCP connection, and DeviceNone is a
	// rejection.
	Device Device
	// Token, if HasToken, is what the client presents on the new channel, once.
	Token    [16]byte
	HasToken bool
	// Port is the port of rdma_cm (RDMA_PS_TCP) on the server's address, 0 if
	// there is none.
	Port uint16
	// Stay says that a client which cannot open the new channel may stay on iwarp.
	Stay bool
}

// Append appends the choice.
func (c *Choice) Append(b []byte) ([]byte, error) {
	start := len(b)
	b = append(b, choiceMagic...)
	b = append(b, Version, 0, byte(c.Device))
	if c.HasToken {
		b = appendItem(b, choiceToken, c.Token[:])
	}
	if c.Port != 0 {
		b = appendItem(b, choicePort, []byte{byte(c.Port >> 8), byte(c.Port)})
	}
	if c.Stay {
		b = appendItem(b, choiceStay)
	}
	b[start+len(choiceMagic)+1] = byte(len(b) - start)
	return b, nil
}

// ParseChoice reads the choice at the start of b, the private data of an MPA Reply. rest is
// what follows it: the HelloAck, or nothing in a rejection. A malformed choice, and one of
// another version, is an *Error. The caller checks that the device was offered, and that the
// choice has the items that it needs.
func ParseChoice(b []byte) (c Choice, rest []byte, err error) {
	if len(b) < choiceHeaderLen || string(b[:len(choiceMagic)]) != choiceMagic {
		return Choice{}, nil, malformed("choice", "magic", "is missing")
	}
	if v := b[len(choiceMagic)]; v != Version {
		return Choice{}, nil, malformed("choice", "version", "is %d, expected %d", v, Version)
	}
	length := int(b[len(choiceMagic)+1])
	if length < choiceHeaderLen || length > len(b) {
		return Choice{}, nil, malformed("choice", "length", "is %d in %d bytes", length, len(b))
	}
	c.Device = Device(b[len(choiceMagic)+2])
	if err := walkItems("choice", b[choiceHeaderLen:length], choiceItems, c.take); err != nil {
		return Choice{}, nil, err
	}
	return c, b[length:], nil
}

func (c *Choice) take(item byte, value []byte) error {
	switch item {
	case choiceToken:
		if len(value) != tokenLen {
			return malformed("choice", "token", "has %d bytes, not %d", len(value), tokenLen)
		}
		c.Token, c.HasToken = [tokenLen]byte(value), true
	case choicePort:
		if len(value) != 2 || binary.BigEndian.Uint16(value) == 0 {
			return malformed("choice", "port", "is not a port: %x", value)
		}
		c.Port = binary.BigEndian.Uint16(value)
	case choiceStay:
		if len(value) != 0 {
			return malformed("choice", "stay", "has %d bytes, not 0", len(value))
		}
		c.Stay = true
	}
	return nil
}

// ParseRejection reports whether b, the private data of an MPA Reply that rejects, is a choice
// of no device and nothing else. The connection then continues as plain TCP. It returns the
// version of the choice, which may differ from Version.
func ParseRejection(b []byte) (v int, ok bool) {
	none := len(b) == choiceHeaderLen && string(b[:len(choiceMagic)]) == choiceMagic &&
		int(b[len(choiceMagic)+1]) == choiceHeaderLen && Device(b[len(choiceMagic)+2]) == DeviceNone
	if !none {
		return 0, false
	}
	return int(b[len(choiceMagic)]), true
}
