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
	return netip.AddrPort{}, fmt.Errorf("original destinations are available on Linux only: %w", errors.ErrUnsupported)
}

func setMark(syscall.RawConn, uint32) error {
	return fmt.Errorf("firewall marks are available on Linux only: %w", errors.ErrUnsupported)
}
