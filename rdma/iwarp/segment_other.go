//go:build !linux

package iwarp

import "net"

// segmentSize returns how many bytes a TCP segment carries on Ethernet.
func segmentSize(net.Conn) int { return 1460 }
