//go:build !linux

package iwarp

import "net"

func newTransport(c net.Conn) (transport, error) { return newStreamTransport(c), nil }
