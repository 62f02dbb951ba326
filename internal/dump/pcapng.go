package dump

import "encoding/binary"

// The blocks and options of pcapng (draft-ietf-opsawg-pcapng) that a dump uses.
const (
	sectionBlock    = 0x0a0d0d0a
	interfaceBlock  = 1
	statisticsBlock = 5
	packetBlock     = 6

	byteOrderMagic = 0x1a2b3c4d
	linkRaw        = 101 // LINKTYPE_RAW: a packet begins with its IP header

	optionComment     = 1
	optionName        = 2 // if_name
	optionApplication = 4 // shb_userappl
	optionResolution  = 9 // if_tsresol
	optionFlags       = 2 // epb_flags
	optionDropped     = 4 // epb_dropcount
	optionReceived    = 4 // isb_ifrecv
	optionLost        = 5 // isb_ifdrop

	inbound  = 1 // epb_flags
	outbound = 2
)

var order = binary.LittleEndian

// maxComment bounds a comment, which has texts of the program's and of addresses.
const maxComment = 1024

// A block is a block of pcapng that is being appended to a buffer.
type block struct{ begin int }

func beginBlock(b []byte, kind uint32) ([]byte, block) {
	at := block{len(b)}
	b = order.AppendUint32(b, kind)
	return append(b, 0, 0, 0, 0), at // its length
}

func (at block) end(b []byte) []byte {
	b = append(b, 0, 0, 0, 0) // opt_endofopt
	n := uint32(len(b) - at.begin + 4)
	order.PutUint32(b[at.begin+4:], n)
	return order.AppendUint32(b, n)
}

func pad(b []byte, begin int) []byte {
	for (len(b)-begin)%4 != 0 {
		b = append(b, 0)
	}
	return b
}

func appendOption(b []byte, code uint16, value []byte) []byte {
	b = order.AppendUint16(b, code)
	b = order.AppendUint16(b, uint16(len(value)))
	begin := len(b)
	return pad(append(b, value...), begin)
}

func appendText(b []byte, code uint16, text string) []byte {
	if text == "" {
		return b
	}
	return appendOption(b, code, []byte(text[:min(len(text), maxComment)]))
}

func appendNumber(b []byte, code uint16, n uint64) []byte {
	return appendOption(b, code, order.AppendUint64(nil, n))
}

// appendHeader appends the blocks with which a file begins.
func appendHeader(b []byte, comment string) []byte {
	b, section := beginBlock(b, sectionBlock)
	b = order.AppendUint32(b, byteOrderMagic)
	b = order.AppendUint16(b, 1) // version 1.0
	b = order.AppendUint16(b, 0)
	b = order.AppendUint64(b, ^uint64(0)) // the section's length is not known
	b = appendText(b, optionComment, comment)
	b = appendText(b, optionApplication, "sdp dump")
	b = section.end(b)

	b, device := beginBlock(b, interfaceBlock)
	b = order.AppendUint16(b, linkRaw)
	b = order.AppendUint16(b, 0)
	b = order.AppendUint32(b, 0) // no limit for packets
	b = appendText(b, optionName, "sdp")
	b = appendOption(b, optionResolution, []byte{9}) // nanoseconds
	return device.end(b)
}

// appendPacket appends a packet.
func appendPacket(b []byte, p *packet) []byte {
	b, at := beginBlock(b, packetBlock)
	b = order.AppendUint32(b, 0) // the interface
	b = appendTime(b, p.at.UnixNano())
	b = append(b, 0, 0, 0, 0, 0, 0, 0, 0) // the lengths
	begin := len(b)
	b = p.append(b)
	n := uint32(len(b) - begin)
	order.PutUint32(b[begin-8:], n)
	order.PutUint32(b[begin-4:], n)
	b = pad(b, begin)
	b = appendText(b, optionComment, p.comment)
	flags := uint32(inbound)
	if p.out {
		flags = outbound
	}
	b = appendOption(b, optionFlags, order.AppendUint32(nil, flags))
	if p.lost > 0 {
		b = appendNumber(b, optionDropped, p.lost)
	}
	return at.end(b)
}

// appendEnd appends the block with which a file ends.
func appendEnd(b []byte, now int64, packets, lost uint64, comment string) []byte {
	b, at := beginBlock(b, statisticsBlock)
	b = order.AppendUint32(b, 0) // the interface
	b = appendTime(b, now)
	b = appendText(b, optionComment, comment)
	b = appendNumber(b, optionReceived, packets)
	b = appendNumber(b, optionLost, lost)
	return at.end(b)
}

func appendTime(b []byte, ns int64) []byte {
	b = order.AppendUint32(b, uint32(uint64(ns)>>32))
	return order.AppendUint32(b, uint32(ns))
}

// EndComment returns the comment of the block at the end of a file, given at least the file's last
// 1024 bytes; "" if the file is not complete.
func EndComment(tail []byte) string {
	if len(tail) < 12 {
		return ""
	}
	n := order.Uint32(tail[len(tail)-4:])
	if n < 32 || uint64(n) > uint64(len(tail)) {
		return ""
	}
	b := tail[len(tail)-int(n) : len(tail)-4]
	if order.Uint32(b) != statisticsBlock || order.Uint32(b[4:]) != n {
		return ""
	}
	for b = b[20:]; len(b) >= 4; {
		code, length := order.Uint16(b), int(order.Uint16(b[2:]))
		if b = b[4:]; length > len(b) {
			return ""
		}
		if code == optionComment {
			return string(b[:length])
		}
		b = b[min(len(b), (length+3)&^3):]
	}
	return ""
}
