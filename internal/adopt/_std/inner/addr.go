package net

import (
	"net/netip"
	"strconv"
)

// IP is an address of 4 or 16 bytes.
type IP []byte

func (ip IP) addr() netip.Addr {
	a, _ := netip.AddrFromSlice(ip)
	return a.Unmap()
}

// Equal acts like that of package net.
func (ip IP) Equal(x IP) bool { return ip.addr() == x.addr() }

// IsLoopback acts like that of package net.
func (ip IP) IsLoopback() bool { return ip.addr().IsLoopback() }

// IPMask is a mask of 4 or 16 bytes.
type IPMask []byte

// Size returns how many leading ones there are in the mask, and how many bits.
func (m IPMask) Size() (ones, bits int) {
	for _, b := range m {
		for ; b&0x80 != 0; b <<= 1 {
			ones++
		}
	}
	return ones, 8 * len(m)
}

// IPNet is an address with the mask of its network.
type IPNet struct {
	IP   IP
	Mask IPMask
}

func (n *IPNet) Network() string { return "ip+net" }

func (n *IPNet) String() string {
	ones, _ := n.Mask.Size()
	return netip.PrefixFrom(n.IP.addr(), ones).String()
}

// TCPAddr is the address of an end of a TCP connection.
type TCPAddr struct {
	IP   IP
	Port int
	Zone string
}

func (a *TCPAddr) Network() string { return "tcp" }

func (a *TCPAddr) AddrPort() netip.AddrPort {
	if a == nil {
		return netip.AddrPort{}
	}
	ip, _ := netip.AddrFromSlice(a.IP)
	if a.Zone != "" {
		ip = ip.WithZone(a.Zone)
	}
	return netip.AddrPortFrom(ip, uint16(a.Port))
}

func (a *TCPAddr) String() string {
	if a == nil {
		return "<nil>"
	}
	if len(a.IP) == 0 {
		return ":" + strconv.Itoa(a.Port)
	}
	ip := a.IP.addr()
	if a.Zone != "" {
		ip = ip.WithZone(a.Zone)
	}
	return netip.AddrPortFrom(ip, uint16(a.Port)).String()
}

// UnixAddr is the address of a Unix socket.
type UnixAddr struct {
	Name string
	Net  string
}

func (a *UnixAddr) Network() string { return a.Net }

func (a *UnixAddr) String() string {
	if a == nil {
		return "<nil>"
	}
	return a.Name
}
