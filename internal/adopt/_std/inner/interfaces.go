package net

import (
	"os"
	"strconv"
	"strings"
	"syscall"
	"unsafe"
)

// Interface is a network interface.
type Interface struct{ Index int }

// InterfaceByName returns the interface with that name.
func InterfaceByName(name string) (*Interface, error) {
	text, err := os.ReadFile("/sys/class/net/" + name + "/ifindex")
	if err != nil {
		return nil, err
	}
	index, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return nil, err
	}
	return &Interface{Index: index}, nil
}

// Addrs returns the interface's addresses, each an *IPNet.
func (i *Interface) Addrs() ([]Addr, error) { return addresses(i.Index) }

// InterfaceAddrs returns the addresses of all interfaces, each an *IPNet.
func InterfaceAddrs() ([]Addr, error) { return addresses(0) }

// addresses returns the addresses of an interface; those of all interfaces if index is 0.
func addresses(index int) (all []Addr, err error) {
	table, err := syscall.NetlinkRIB(syscall.RTM_GETADDR, syscall.AF_UNSPEC)
	if err != nil {
		return nil, os.NewSyscallError("netlinkrib", err)
	}
	messages, err := syscall.ParseNetlinkMessage(table)
	if err != nil {
		return nil, os.NewSyscallError("parsenetlinkmessage", err)
	}
	for _, m := range messages {
		if m.Header.Type != syscall.RTM_NEWADDR || len(m.Data) < syscall.SizeofIfAddrmsg {
			continue
		}
		a := (*syscall.IfAddrmsg)(unsafe.Pointer(&m.Data[0]))
		if index != 0 && index != int(a.Index) {
			continue
		}
		attrs, err := syscall.ParseNetlinkRouteAttr(&m)
		if err != nil {
			return nil, os.NewSyscallError("parsenetlinkrouteattr", err)
		}
		if n := network(a, attrs); n != nil {
			all = append(all, n)
		}
	}
	return all, nil
}

// network returns an address with its network. The attribute IFA_ADDRESS is that of the other end
// if the interface is a point-to-point one; IFA_LOCAL is then this end's.
func network(a *syscall.IfAddrmsg, attrs []syscall.NetlinkRouteAttr) *IPNet {
	size := 4
	switch a.Family {
	case syscall.AF_INET:
	case syscall.AF_INET6:
		size = 16
	default:
		return nil
	}
	var ip IP
	for _, attr := range attrs {
		if len(attr.Value) < size {
			continue
		}
		if attr.Attr.Type == syscall.IFA_LOCAL || attr.Attr.Type == syscall.IFA_ADDRESS && ip == nil {
			ip = IP(attr.Value[:size])
		}
	}
	if ip == nil {
		return nil
	}
	mask := make(IPMask, size)
	for i := range int(a.Prefixlen) {
		if i < 8*size {
			mask[i/8] |= 0x80 >> (i % 8)
		}
	}
	return &IPNet{IP: ip, Mask: mask}
}
