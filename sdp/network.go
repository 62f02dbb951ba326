package sdp

import (
	"context"
	"net"
	"strings"
)

// network is what a program calls a network, taken apart.
type network struct {
	name string // as it was given: "sdp4"
	tcp  string // of the connection that everything begins with: "tcp4", "unix"
	only bool   // SDP or nothing
}

func parseNetwork(name string) (network, error) {
	switch name {
	case "tcp", "tcp4", "tcp6", "unix":
		return network{name, name, false}, nil
	case "sdp", "sdp4", "sdp6":
		return network{name, "tcp" + strings.TrimPrefix(name, "sdp"), true}, nil
	}
	return network{}, net.UnknownNetworkError(name)
}

// opError returns err as package net does, a *net.OpError, under the network's
// own name. The addresses are those known where it happened, nil if none is.
func (n network) opError(op string, source, addr net.Addr, err error) error {
	if inner, ok := err.(*net.OpError); ok {
		e := *inner
		e.Op, e.Net = op, n.name
		return &e
	}
	return &net.OpError{Op: op, Net: n.name, Source: source, Addr: addr, Err: err}
}

// contextError returns why ctx is done, err if it is not.
func contextError(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}
