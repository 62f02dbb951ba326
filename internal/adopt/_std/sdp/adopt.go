// This file is part of package sdp only inside package net.

package sdp

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/gosdp/gosdp/internal/rules"
)

// decided returns the settings for an address, and the network under the rule for it.
func decided(name string, role rules.Role, address net.Addr) (*settings, network, error) {
	n := network{name: name, tcp: name}
	n = n.ruled((*Config)(nil).ruleAt(n, role, address))
	set, err := (*Config)(nil).shared(n)
	return set, n, err
}

// Dials reports whether DialContext must make a connection to an address, because SDP over RDMA may be
// used. Otherwise package net does, for Dialled.
func Dials(network string, address net.Addr) (rdma bool, err error) {
	set, n, err := decided(network, rules.Client, address)
	if err != nil {
		n.logDial(address.String(), nil, err)
		return false, err
	}
	return len(set.Devices) > 0, nil
}

// Dialled returns the Conn for a TCP connection that package net has dialled, and nil if that stays as it is.
func Dialled(ctx context.Context, network string, conn net.Conn) (*Conn, error) {
	set, n, err := decided(network, rules.Client, conn.RemoteAddr())
	if err != nil {
		return nil, err
	}
	c, err := set.dialled(ctx, n, conn)
	address := conn.RemoteAddr().String()
	if c == nil {
		n.logDial(address, conn, err)
	} else {
		n.logDial(address, c, err)
	}
	return c, err
}

func (s *settings) dialled(ctx context.Context, n network, conn net.Conn) (*Conn, error) {
	if !n.only {
		return s.onHost(conn, true), nil
	}
	c, err := s.meet(ctx, conn, s.ReplyTimeout)
	if c == nil && err == nil {
		err = errNotLocal
	}
	if err != nil && ctx.Err() != nil {
		return nil, contextError(ctx, err)
	}
	if err != nil {
		return nil, n.demanded(&NotSDPError{Addr: conn.RemoteAddr(), Err: err})
	}
	return c, nil
}

// Listens reports whether a Listener must accept the connections of a listening socket, because clients
// may ask for SDP over RDMA, or must use SDP. Otherwise package net does, for Accepted. It fails if a
// Listener must, and the program has none (rdma is false).
func Listens(address net.Addr, rdma bool) (bool, error) {
	set, n, err := decided("tcp", rules.Server, address)
	if err != nil {
		return false, err
	}
	if n.only && !rdma {
		return false, n.demanded(errNoListener)
	}
	n.logListen(address, set)
	return n.only || set.asks, nil
}

var errNoListener = errors.New("program cannot refuse clients without SDP; build it with sdp go -iwarp")

// Accepted returns the Conn for a connection that package net has accepted at an address, and nil if that
// stays as it is.
func Accepted(conn net.Conn, address net.Addr) *Conn {
	set, _, err := decided("tcp", rules.Server, address)
	if err != nil {
		return nil
	}
	return set.onHost(conn, false)
}

// Continued returns the Conn for a connection that another process has begun, and nil if that stays as it
// is.
func Continued(conn net.Conn) *Conn {
	set, _, err := decided("tcp", rules.Server, conn.LocalAddr())
	if err != nil {
		return nil
	}
	return set.inherit(conn)
}

// OverRDMA reports whether SDP's messages carry the connection.
func (c *Conn) OverRDMA() bool {
	_, ok := c.carrier.(*conn)
	return ok
}

// Under returns the TCP connection below c.
func (c *Conn) Under() net.Conn {
	if l, ok := c.carrier.(*local); ok {
		return l.Under()
	}
	return c.carrier.(*conn).tcp
}

// Getenv returns an environment variable, or "" in a program that has more rights than its caller.
func Getenv(name string) string { return getenv(name) }

// CloseAll closes all connections over RDMA, and waits for at most d until they have delivered what their
// Writes have accepted; see docs/exit.md.
func CloseAll(d time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		var open []*conn
		for _, r := range openConns.list() {
			if c, ok := r.carrier.(*conn); ok {
				open = append(open, c)
			}
		}
		if len(open) == 0 {
			return
		}
		done := make(chan struct{}, len(open))
		for _, c := range open {
			go func() {
				c.Close()
				done <- struct{}{}
			}()
		}
		for range open {
			<-done
		}
		WaitClosed(ctx)
	}()
	select {
	case <-closed:
	case <-ctx.Done():
	}
}
