package rdma

import (
	"net/netip"
	"time"
)

// Base has the methods of a [QueuePair] that only some devices need. Its methods do nothing and
// need no memory. A device embeds it, replaces what it can do better, and says so in its Limits.
type Base struct{}

// Settled returns true: what PostSend has accepted has left this process unless the device is Busy.
func (Base) Settled() bool { return true }

// Settle returns nil at once.
func (Base) Settle() error { return nil }

// Width returns n.
func (Base) Width(n int) int { return n }

// SetBusyPoll does nothing: Wait polls as the device sees fit.
func (Base) SetBusyPoll(time.Duration) {}

// Shrink does nothing.
func (Base) Shrink() {}

// Lost does nothing: the device itself notices that the peer's host has disappeared.
func (Base) Lost(error) {}

// Finish returns false: only Drain can tell.
func (Base) Finish() (ended, done bool) { return false, false }

// BaseDevice has the methods of a [Device] that only some devices need.
type BaseDevice struct{}

// OnlyIfNamed returns nil: network "tcp" uses the device wherever it can.
func (BaseDevice) OnlyIfNamed(netip.Addr) error { return nil }

// Pinned returns nil: the device locks no memory.
func (BaseDevice) Pinned() map[string]int64 { return nil }
