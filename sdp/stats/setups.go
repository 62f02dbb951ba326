package stats

import "time"

// Setups are statistics about connection set-up. The counters only grow.
type Setups struct {
	// Devices counts the connections that were opened, dialled or accepted, by the device with which they
	// began: "tcp" if that may move to shared memory.
	Devices map[string]uint64
	// Plain counts the Dials that returned a connection of package net, by reason, and PlainAccepts
	// the Accepts that returned what the underlying listener has accepted. Failed counts the Dials that
	// returned an error.
	Plain, PlainAccepts map[PlainReason]uint64
	Failed              uint64
}

// A PlainReason says why a Dial or an Accept returned a connection that is not of this library; see [Setups].
type PlainReason uint8

const (
	PlainOther       PlainReason = iota // not a TCP socket
	PlainHost                           // the peer is on another host or in another network namespace, and may not be asked
	PlainPeer                           // the peer does not speak SDP: a server that was asked, or a client that may ask
	PlainSetupFailed                    // the peer speaks SDP, but the handshake failed or no device works
	PlainRule                           // a rule in the file that SDP_CONFIG names says TCP
	PlainOff                            // Config.Devices or SDP_DEVICES switches SDP off
	PlainNoDevice                       // both ends are on one host, and shared memory may not or cannot be used
)

// String returns the reason in the form in which metrics show it, such as "plain_peer".
func (r PlainReason) String() string {
	switch r {
	case PlainPeer:
		return "plain_peer"
	case PlainHost:
		return "other_host"
	case PlainSetupFailed:
		return "setup_failed"
	case PlainRule:
		return "rule"
	case PlainOff:
		return "off"
	case PlainNoDevice:
		return "no_device"
	}
	return "other"
}

// sentence returns the reason in the form in which logs have it.
func (r PlainReason) sentence() string {
	switch r {
	case PlainPeer:
		return "peer does not speak SDP"
	case PlainHost:
		return "peer is on another host or in another network namespace"
	case PlainSetupFailed:
		return "SDP set-up failed"
	case PlainRule:
		return "rule says TCP"
	case PlainOff:
		return "SDP_DEVICES or Config.Devices says TCP"
	case PlainNoDevice:
		return "shared memory may not or cannot be used, and both ends are on one host"
	}
	return "not a TCP socket"
}

// MarshalText implements [encoding.TextMarshaler], so that JSON has the reason's name.
func (r PlainReason) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// A Dial describes a Dial that has returned.
type Dial struct {
	Network, Address string // as the program gave them
	Duration         time.Duration
	Device           string      // "" if the connection is one of package net, or Err is not nil
	Plain            PlainReason // why the connection is one of package net, if Device is "" and Err is nil
	Cause            error       // of that: how the handshake ended; nil if there was none
	Err              error
}

// Why returns why the connection is one of package net.
func (e *Dial) Why() string {
	if e.Cause != nil {
		return e.Cause.Error()
	}
	return e.Plain.sentence()
}
