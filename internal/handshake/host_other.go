//go:build !linux

package handshake

import (
	"net"
	"time"
)

// readHost knows no name for this host that no other host has.
func readHost() string { return "" }

// tos returns 0: no device here uses it.
func tos(net.Conn) uint8 { return 0 }

// sinceArrival knows nothing.
func sinceArrival(net.Conn) (since time.Duration, known bool) { return 0, false }
