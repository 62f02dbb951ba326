// This file is not part of the Go distribution. The package is a copy of package net for the
// library that package net itself imports; its sockets belong to package net.

package net

import (
	"context"
	"errors"
	"internal/poll"
	"syscall"
	_ "unsafe"
)

// Package os defines it for package net.
//
//go:linkname newUnixFile net.newUnixFile

// FromFD returns a connection on a socket of package net. owner is that package's netFD.
func FromFD(pfd *poll.FD, family int, network string, local, remote *TCPAddr, owner any) *TCPConn {
	return &TCPConn{conn{&netFD{
		pfd: pfd, family: family, sotype: syscall.SOCK_STREAM, isConnected: true,
		net: network, laddr: local, raddr: remote, owner: owner,
	}}}
}

// OwnerOf returns the owner of a connection that FromFD returned.
func OwnerOf(c Conn) any { return c.(*TCPConn).fd.owner }

// Control is a Dialer's ControlContext.
type Control = func(ctx context.Context, network, address string, c syscall.RawConn) error

type connectKey struct{}

type connectFunc_ = func(context.Context, Control) (Conn, error)

// WithConnect returns a context in which Dialers on networks of TCP make no connections
// themselves but call connect, whose sockets pass through the Control.
func WithConnect(ctx context.Context, connect func(context.Context, Control) (Conn, error)) context.Context {
	return context.WithValue(ctx, connectKey{}, connectFunc_(connect))
}

func connectOf(ctx context.Context, network string) connectFunc_ {
	switch network {
	case "tcp", "tcp4", "tcp6":
		connect, _ := ctx.Value(connectKey{}).(connectFunc_)
		return connect
	}
	return nil
}

// errNotHere is the error of functions that the library does not use.
var errNotHere = errors.New("net: not in the library's copy of the package")
