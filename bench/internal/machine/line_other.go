//go:build !linux

package machine

import "time"

// A Line measures the round trip of a cache line between processors. Only the Linux
// implementation can bind threads to processors.
type Line struct{}

// NewLine returns nil, because the line cannot be measured on this system.
func NewLine() *Line { return nil }

// Close does nothing.
func (*Line) Close() {}

// RoundTrip returns zero, because the line cannot be measured on this system.
func (*Line) RoundTrip() time.Duration { return 0 }
