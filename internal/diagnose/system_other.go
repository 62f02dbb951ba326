//go:build !linux

package diagnose

import (
	"net/netip"
)

func lockLimit() (limit uint64, unlimited, exempt bool) { return 0, true, false }

func readOwnMemory() error { return nil }

func hostAddresses() []netip.Addr { return nil }
