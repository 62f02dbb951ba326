package proxy

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// soOriginalDst is SO_ORIGINAL_DST of <linux/netfilter_ipv4.h> and IP6T_SO_ORIGINAL_DST of
// <linux/netfilter_ipv6/ip6_tables.h>, which are equal.
const soOriginalDst = 80

// original returns where c was going before the kernel redirected it here (nftables'
// redirect or dnat).
func original(c net.Conn) (netip.AddrPort, error) {
	local := addrPort(c.LocalAddr())
	sc, ok := c.(syscall.Conn)
	if !ok || !local.IsValid() {
		return netip.AddrPort{}, fmt.Errorf("%T has no original destination", c)
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return netip.AddrPort{}, err
	}
	var to netip.AddrPort
	var failed error
	// A socket of IPv6 that carries IPv4 is asked as one of IPv4, because the kernel keeps
	// the connection's record under the addresses that are on the wire.
	ask := original6
	if local.Addr().Is4() || local.Addr().Is4In6() {
		ask = original4
	}
	if err := raw.Control(func(fd uintptr) { to, failed = ask(int(fd)) }); err != nil {
		return netip.AddrPort{}, err
	}
	switch {
	case errors.Is(failed, unix.ENOENT), errors.Is(failed, unix.ENOPROTOOPT):
		return netip.AddrPort{}, errNotRedirected
	case failed != nil:
		return netip.AddrPort{}, os.NewSyscallError("SO_ORIGINAL_DST", failed)
	case to == netip.AddrPortFrom(local.Addr().Unmap(), local.Port()):
		return netip.AddrPort{}, errNotRedirected
	}
	return to, nil
}

func original4(fd int) (netip.AddrPort, error) {
	// struct sockaddr_in takes 16 of these 20 bytes.
	m, err := unix.GetsockoptIPv6Mreq(fd, unix.SOL_IP, soOriginalDst)
	if err != nil {
		return netip.AddrPort{}, err
	}
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte(m.Multiaddr[4:8])), binary.BigEndian.Uint16(m.Multiaddr[2:])), nil
}

func original6(fd int) (netip.AddrPort, error) {
	// struct sockaddr_in6 is what this structure begins with.
	m, err := unix.GetsockoptIPv6MTUInfo(fd, unix.SOL_IPV6, soOriginalDst)
	if err != nil {
		return netip.AddrPort{}, err
	}
	port := (*[2]byte)(unsafe.Pointer(&m.Addr.Port))
	return netip.AddrPortFrom(netip.AddrFrom16(m.Addr.Addr), binary.BigEndian.Uint16(port[:])), nil
}

// setMark sets the firewall mark of a socket.
func setMark(c syscall.RawConn, mark uint32) error {
	var failed error
	if err := c.Control(func(fd uintptr) {
		failed = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_MARK, int(mark))
	}); err != nil {
		return err
	}
	return os.NewSyscallError("SO_MARK", failed)
}
