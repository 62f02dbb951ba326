//go:build !linux

package listener

import "net"

// peerPID returns 0: no device here needs to know.
func peerPID(net.Conn) int { return 0 }
