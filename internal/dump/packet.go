package dump

import (
	"encoding/binary"
	"net/netip"
	"time"
)

// The flags of a TCP header.
const (
	fin = 1 << 0
	syn = 1 << 1
	rst = 1 << 2
	psh = 1 << 3
	ack = 1 << 4
)

const (
	ipv4Len = 20
	ipv6Len = 40
	tcpLen  = 20
	// scale is a TCP option for windows of a gigabyte, so that Wireshark does not take the
	// windows, which stand for nothing, for full.
	scale    = "\x03\x03\x0e\x00"
	protoTCP = 6
	// maxData is how much one packet carries. The length of an IP packet has 16 bits.
	maxData = 32 << 10
)

// A packet is a segment of TCP that was never sent: it shows Wireshark a part of a stream.
type packet struct {
	from, to netip.AddrPort
	at       time.Time
	out      bool // from this end
	flags    byte
	seq, ack uint32
	data     []byte
	comment  string
	lost     uint64 // packets that were left out just before this one
}

// size returns what the packet counts in the queue, with this data.
func (p *packet) size(data []byte) int { return perPacket + len(data) + len(p.comment) }

// append appends the packet with its headers of IP and TCP.
func (p *packet) append(b []byte) []byte {
	options := ""
	if p.flags&syn != 0 {
		options = scale
	}
	n := tcpLen + len(options) + len(p.data)
	from, to := p.from.Addr(), p.to.Addr()
	net := binary.BigEndian
	ip := len(b)
	if from.Is4() {
		b = append(b, 0x45, 0)
		b = net.AppendUint16(b, uint16(ipv4Len+n))
		b = append(b, 0, 0, 0x40, 0, 64, protoTCP, 0, 0) // not to be fragmented
		b = append(b, from.AsSlice()...)
		b = append(b, to.AsSlice()...)
		net.PutUint16(b[ip+10:], ^fold(sum(0, b[ip:])))
	} else {
		b = append(b, 0x60, 0, 0, 0)
		b = net.AppendUint16(b, uint16(n))
		b = append(b, protoTCP, 64)
		b = append(b, from.AsSlice()...)
		b = append(b, to.AsSlice()...)
	}
	tcp := len(b)
	b = net.AppendUint16(b, p.from.Port())
	b = net.AppendUint16(b, p.to.Port())
	b = net.AppendUint32(b, p.seq)
	b = net.AppendUint32(b, p.ack)
	b = append(b, byte(tcpLen+len(options))/4<<4, p.flags, 0xff, 0xff, 0, 0, 0, 0)
	b = append(b, options...)
	b = append(b, p.data...)
	s := sum(sum(uint64(n)+protoTCP, from.AsSlice()), to.AsSlice())
	net.PutUint16(b[tcp+16:], ^fold(sum(s, b[tcp:])))
	return b
}

// sum adds the 16-bit words of b to s, as the checksums of IP and TCP do.
func sum(s uint64, b []byte) uint64 {
	for ; len(b) >= 4; b = b[4:] {
		s += uint64(binary.BigEndian.Uint32(b))
	}
	if len(b) >= 2 {
		s += uint64(binary.BigEndian.Uint16(b))
		b = b[2:]
	}
	if len(b) == 1 {
		s += uint64(b[0]) << 8
	}
	return s
}

func fold(s uint64) uint16 {
	for s > 0xffff {
		s = s>>16 + s&0xffff
	}
	return uint16(s)
}

// pair returns two addresses of one family. An address that is not one of TCP, such as the name
// of a Unix socket, becomes one of this host with a port that the caller has made up.
func pair(local, remote netip.AddrPort, id uint64) (netip.AddrPort, netip.AddrPort) {
	if !local.IsValid() || !remote.IsValid() {
		host := netip.AddrFrom4([4]byte{127, 0, 0, 1})
		return netip.AddrPortFrom(host, uint16(1024+id%30000)), netip.AddrPortFrom(host, uint16(32768+id%30000))
	}
	a, b := local.Addr().Unmap().WithZone(""), remote.Addr().Unmap().WithZone("")
	if a.Is4() != b.Is4() {
		a, b = netip.AddrFrom16(a.As16()), netip.AddrFrom16(b.As16())
	}
	return netip.AddrPortFrom(a, local.Port()), netip.AddrPortFrom(b, remote.Port())
}
