//go:build !linux

package shmdir

import (
	"errors"
	"net/netip"
	"syscall"
)

// Bind is for Linux.
func Bind(syscall.RawConn, netip.AddrPort) (uint16, error) { return 0, errors.ErrUnsupported }

// Dir is a directory that programs meet in, on Linux.
type Dir struct{}

// Open fails: there is no shared memory on this system.
func Open(string) (*Dir, error) { return nil, errors.ErrUnsupported }

// ID is for Linux.
func (*Dir) ID() string { return "" }

// Path is for Linux.
func (*Dir) Path() string { return "" }

// Clean is for Linux.
func (*Dir) Clean() {}

// Announce is for Linux.
func (*Dir) Announce([]int) (*Announcer, error) { return nil, errors.ErrUnsupported }

// NewClaims is for Linux.
func (*Dir) NewClaims([]int) *Claims { return nil }

// Announcer is for Linux.
type Announcer struct{}

// AddListener is for Linux.
func (*Announcer) AddListener(netip.AddrPort) error { return errors.ErrUnsupported }

// Add is for Linux.
func (*Announcer) Add(netip.AddrPort) error { return errors.ErrUnsupported }

// Close is for Linux.
func (*Announcer) Close() error { return nil }

// Suspend is for Linux.
func (*Announcer) Suspend() {}

// Resume is for Linux.
func (*Announcer) Resume() error { return nil }

// Claimed is for Linux.
func (*Announcer) Claimed(netip.AddrPort) *Held { return nil }

// Held is for Linux.
type Held struct{}

// Expected is for Linux.
func (*Held) Expected() bool { return false }

// Release is for Linux.
func (*Held) Release(bool) {}

// Claims is for Linux.
type Claims struct{}

// Add is for Linux.
func (*Claims) Add(syscall.RawConn, string) {}

// Made is for Linux.
func (*Claims) Made(_, _ netip.AddrPort) bool { return false }

// Why is for Linux.
func (*Claims) Why() error { return nil }

// Confirm is for Linux.
func (*Claims) Confirm(_, _ netip.AddrPort) error { return errors.ErrUnsupported }

// Late is for Linux.
func (*Claims) Late() error { return nil }

// Worked is for Linux.
func (*Claims) Worked() {}

// Close is for Linux.
func (*Claims) Close() {}
