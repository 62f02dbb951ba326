// Package adopted lets the library work in a program whose package net uses SDP by itself,
// because "sdp go" has built it. In all others it does nothing.
package adopted

import (
	"context"
	"net"
	"sync/atomic"
	"syscall"
)

// unhooked is the type of the context key that makes calls of package net use plain TCP. It is an
// unnamed type, so that it is identical there.
type unhooked = struct{ GosdpUnhooked struct{} }

// Plain returns a context in which package net dials and listens without SDP.
func Plain(ctx context.Context) context.Context {
	if ordinary.Load() {
		return ctx
	}
	return context.WithValue(ctx, unhooked{}, true)
}

// ordinary is set when a connection or listener of package net has shown that the package
// has no hooks.
var ordinary atomic.Bool

// Settled reports whether package net has already decided whether the connection or listener uses
// SDP. The library must then not negotiate. It is safe for concurrent use.
func Settled(c any) bool {
	if ordinary.Load() {
		return false
	}
	sc, ok := c.(syscall.Conn)
	if !ok {
		return false
	}
	rc, err := sc.SyscallConn()
	if err != nil {
		return false
	}
	hooked, ok := rc.(interface{ SDP() bool })
	if _, tcp := c.(*net.TCPConn); tcp && !ok {
		ordinary.Store(true)
	}
	return ok && hooked.SDP()
}
