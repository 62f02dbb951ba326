package proxy

import (
	"net/netip"
	"syscall"
)

func socketAddress(fd uintptr) netip.AddrPort {
	a, err := syscall.Getsockname(syscall.Handle(fd))
	if err != nil {
		return netip.AddrPort{}
	}
	return socketAddressOf(a)
}
