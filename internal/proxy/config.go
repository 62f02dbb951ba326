package proxy

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"time"
)

// The networks of an Endpoint.
const (
	TCP  = "tcp"  // package net
	SDP  = "sdp"  // network sdp of package sdp: the two ends meet before the first byte, or there is no connection
	Auto = "auto" // network tcp of package sdp: plain TCP, which may move to shared memory; SDP over RDMA if it was asked for
)

// originalAddress is the address that means the original destination of a redirected connection.
const originalAddress = "original"

// An Endpoint is an address and the protocol to use there.
type Endpoint struct {
	Network string // TCP, SDP or Auto
	Address string // host:port, "@name" of an inherited socket, or "original"
}

// String returns the endpoint in the form that ParseEndpoint reads.
func (e Endpoint) String() string { return e.Network + "://" + e.Address }

// inherited returns the name of the inherited socket that e refers to.
func (e Endpoint) inherited() (name string, ok bool) { return strings.CutPrefix(e.Address, "@") }

// original reports whether e means the destination that a connection had before it was
// redirected.
func (e Endpoint) original() bool { return e.Address == originalAddress }

// ParseEndpoint reads an endpoint such as "tcp://127.0.0.1:5432".
func ParseEndpoint(text string) (Endpoint, error) {
	network, address, ok := strings.Cut(text, "://")
	if !ok || network != TCP && network != SDP && network != Auto {
		return Endpoint{}, fmt.Errorf("%q is not an endpoint: want tcp://, sdp:// or auto:// and an address", text)
	}
	return Endpoint{network, address}, nil
}

// ParseListen reads an endpoint to listen at: host:port or @name.
func ParseListen(text string) (Endpoint, error) {
	e, err := ParseEndpoint(text)
	if err != nil {
		return Endpoint{}, err
	}
	if name, ok := e.inherited(); ok {
		switch {
		case name == "":
			return Endpoint{}, fmt.Errorf("%q names no socket: want @ and a name, such as tcp://@postgres", text)
		case e.Network == SDP:
			return Endpoint{}, fmt.Errorf("%q: an inherited socket serves tcp:// or auto://", text)
		}
		return e, nil
	}
	if e.original() {
		return Endpoint{}, fmt.Errorf("%q is valid only as a target; listen takes host:port", text)
	}
	_, err = checkAddress(text, e.Address)
	return e, err
}

// ParseDial reads an endpoint to dial: host:port or original.
func ParseDial(text string) (Endpoint, error) {
	e, err := ParseEndpoint(text)
	if err != nil || e.original() {
		return e, err
	}
	host, err := checkAddress(text, e.Address)
	if err == nil && host == "" {
		err = fmt.Errorf("missing host in %q", text)
	}
	return e, err
}

func checkAddress(text, address string) (host string, err error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		var bad *net.AddrError
		if errors.As(err, &bad) {
			return "", fmt.Errorf("%q: %s", text, bad.Err)
		}
		return "", fmt.Errorf("%q: %w", text, err)
	}
	if _, err := net.LookupPort("tcp", port); err != nil {
		return "", fmt.Errorf("%q: invalid port %q", text, port)
	}
	return host, nil
}

// A Route is an endpoint to listen at, an endpoint to dial for each connection, and options.
type Route struct {
	Listen Endpoint
	Dial   Endpoint
	Options
	Line int // of the file, 0 without one
}

// Options are the options of a route.
type Options struct {
	// Limit is how many connections the route relays at a time. Further ones wait. 0 means
	// no limit.
	Limit int
	// DialTimeout is how long a connection waits for its target.
	DialTimeout time.Duration
	// Mark is the firewall mark (SO_MARK) of the connections that the proxy dials; 0: none.
	// By it, rules that redirect connections can exclude the proxy's own.
	Mark uint32
}

// DefaultDialTimeout is shorter than the kernel's own limit of two minutes, because most clients
// give up before that.
const DefaultDialTimeout = 30 * time.Second
