// This file is part of package sdp only inside package net.

package sdp

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/gosdp/gosdp/internal/engine"
	"github.com/gosdp/gosdp/internal/observe"
	"github.com/gosdp/gosdp/internal/policy"
	"github.com/gosdp/gosdp/internal/rules"
	"github.com/gosdp/gosdp/sdp/stats"
)

// decided returns the settings for an address, and the network under the rule for it.
func decided(name string, role rules.Role, address net.Addr) (*settings, policy.Network, error) {
	var defaults *Config
	n := defaults.options().RuledAt(policy.Network{Name: name, TCP: name}, role, address)
	set, err := defaults.shared(n)
	return set, n, err
}

// Dials reports whether DialRDMA must make a connection to an address, because SDP over RDMA may be
// used. Otherwise package net does, for Dialled.
func Dials(network string, address net.Addr) (rdma bool, err error) {
	set, n, err := decided(network, rules.Client, address)
	if err != nil {
		logDial(n, &stats.Dial{Address: address.String()}, nil, err)
		return false, err
	}
	return len(set.Devices) > 0, nil
}

// DialRDMA acts like Dial, and also returns why the connection is not a Conn.
func DialRDMA(ctx context.Context, network, address string) (c net.Conn, why string, err error) {
	e := stats.Dial{Network: network, Address: address}
	c, err = new(Dialer).dialContext(ctx, &e)
	e.Err = err
	observe.Dialled(e)
	return c, e.Why(), err
}

// Dialled returns the Conn for a TCP connection that package net has dialled, or why that stays as it is.
func Dialled(ctx context.Context, network string, conn net.Conn) (c *Conn, why string, err error) {
	set, n, err := decided(network, rules.Client, conn.RemoteAddr())
	if err != nil {
		return nil, "", err
	}
	e := stats.Dial{Network: network, Address: conn.RemoteAddr().String()}
	if c, err = set.dialled(ctx, n, conn); c != nil {
		e.Device = c.Device()
	} else {
		e.Plain = set.plainReason(conn, nil)
	}
	e.Err = err
	observe.Dialled(e)
	logDial(n, &e, conn, err)
	return c, e.Why(), err
}

func (s *settings) dialled(ctx context.Context, n policy.Network, conn net.Conn) (*Conn, error) {
	if !n.Only {
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
		return nil, n.Demanded(&NotSDPError{Addr: conn.RemoteAddr(), Err: err})
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
	if n.Only && !rdma {
		return false, n.Demanded(errNoListener)
	}
	logListen(n, address, set)
	return n.Only || set.Asks(), nil
}

var errNoListener = errors.New("program cannot refuse clients without SDP; build it with sdp go -iwarp")

// Accepted returns the Conn for a connection that package net has accepted at an address, or why that
// stays as it is.
func Accepted(conn net.Conn, address net.Addr) (c *Conn, why string) {
	set, n, err := decided("tcp", rules.Server, address)
	if err != nil {
		return nil, err.Error()
	}
	if c = set.onHost(conn, false); c != nil {
		return c, ""
	}
	reason := set.plainReason(conn, nil)
	if !n.Only && !set.Asks() { // a Listener has counted it
		observe.PlainAccepted(reason)
	}
	return nil, (&stats.Dial{Plain: reason}).Why()
}

// Continued returns the Conn for a connection that another process has begun, or why that stays as it
// is.
func Continued(conn net.Conn) (c *Conn, why string) {
	set, _, err := decided("tcp", rules.Server, conn.LocalAddr())
	if err != nil {
		return nil, err.Error()
	}
	if c = set.inherit(conn); c != nil {
		return c, ""
	}
	return nil, (&stats.Dial{Plain: set.plainReason(conn, nil)}).Why()
}

// Stayed returns why the connection has never been in shared memory; "": it has, or cannot be.
func (c *Conn) Stayed() string { return c.Stats().Stayed() }

// OverRDMA reports whether SDP's messages carry the connection.
func (c *Conn) OverRDMA() bool {
	_, ok := c.carrier.(*engine.Conn)
	return ok
}

// Under returns the TCP connection below c.
func (c *Conn) Under() net.Conn { return c.carrier.(interface{ Under() net.Conn }).Under() }

// Getenv returns an environment variable, or "" in a program that has more rights than its caller.
func Getenv(name string) string { return policy.Getenv(name) }

// CloseAll closes all connections over RDMA, and waits for at most d until they have delivered what their
// Writes have accepted; see docs/exit.md.
func CloseAll(d time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		var open []*engine.Conn
		for _, up := range observe.Open() {
			if c, ok := up.(*engine.Conn); ok {
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
