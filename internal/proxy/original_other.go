//go:build !linux

package proxy

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
)

func original(net.Conn) (netip.AddrPort, error) {
	return netip.AddrPort{}, fmt.Errorf("the original destination of a connection is known on Linux only: %w", errors.ErrUnsupported)
}

func setMark(syscall.RawConn, uint32) error {
	return fmt.Errorf("firewall marks exist on Linux only: %w", errors.ErrUnsupported)
}
