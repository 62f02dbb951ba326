package policy

import (
	"fmt"
	"net"
	"strings"

	"github.com/gosdp/gosdp/internal/netname"
	"github.com/gosdp/gosdp/internal/rules"
)

// Network is a parsed network name.
type Network struct {
	Name  string      // as it was given: "sdp4"
	TCP   string      // that of the underlying connection: "tcp4", "unix"
	Only  bool        // a peer that does not speak SDP is an error
	Plain bool        // SDP is not used
	Rule  *rules.Rule // the operator's, which has set Only or Plain; nil: there is none
}

// TCP is the network of connections and listeners that package net has made.
var TCP = Network{Name: "tcp", TCP: "tcp"}

// ParseNetwork parses the name that a program gives to Dial or Listen.
func ParseNetwork(name string) (Network, error) {
	switch name {
	case "tcp", "tcp4", "tcp6", "unix":
		return Network{Name: name, TCP: name}, nil
	case "sdp", "sdp4", "sdp6":
		return Network{Name: name, TCP: "tcp" + strings.TrimPrefix(name, "sdp"), Only: true}, nil
	}
	return Network{}, net.UnknownNetworkError(name)
}

// ID returns the ID of the network's name.
func (n Network) ID() netname.ID { return netname.Of(n.Name) }

// OpError returns err as package net does, as a *net.OpError, with the name that the program
// gave the network. Addresses that are not known are nil.
func (n Network) OpError(op string, source, addr net.Addr, err error) error {
	return netname.OpError(n.Name, op, source, addr, err)
}

// ruled returns the network as it is under a rule.
func (n Network) ruled(r *rules.Rule) Network {
	if r == nil {
		return n
	}
	n.Rule = r
	n.Only = r.Use == rules.SDP
	n.Plain = r.Use == rules.TCP
	return n
}

// Demanded returns err with the rule that has made it an error.
func (n Network) Demanded(err error) error {
	if n.Rule == nil || err == nil {
		return err
	}
	return &DemandedError{fmt.Sprintf("%s:%d", operator().set.File, n.Rule.Line), err}
}

// A DemandedError is an error because a rule asks for SDP.
type DemandedError struct {
	rule string
	err  error
}

func (e *DemandedError) Error() string { return e.rule + " requires SDP: " + e.err.Error() }
func (e *DemandedError) Unwrap() error { return e.err }
