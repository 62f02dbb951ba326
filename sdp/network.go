package sdp

import (
	"context"
	"net"
	"strings"

	"github.com/gosdp/gosdp/internal/netname"
	"github.com/gosdp/gosdp/internal/rules"
)

// network is a parsed network name.
type network struct {
	name  string      // as it was given: "sdp4"
	tcp   string      // that of the underlying connection: "tcp4", "unix"
	only  bool        // a peer that does not speak SDP is an error
	plain bool        // SDP is not used
	rule  *rules.Rule // the operator's, which has set only or plain; nil: there is none
}

func parseNetwork(name string) (network, error) {
	switch name {
	case "tcp", "tcp4", "tcp6", "unix":
		return network{name: name, tcp: name}, nil
	case "sdp", "sdp4", "sdp6":
		return network{name: name, tcp: "tcp" + strings.TrimPrefix(name, "sdp"), only: true}, nil
	}
	return network{}, net.UnknownNetworkError(name)
}

func (n network) id() netname.ID { return netname.Of(n.name) }

// opError returns err as package net does, as a *net.OpError, with the name that the program
// gave the network. Addresses that are not known are nil.
func (n network) opError(op string, source, addr net.Addr, err error) error {
	return netname.OpError(n.name, op, source, addr, err)
}

// contextError returns why ctx is done, as package net says it, and err if ctx is not done.
func contextError(ctx context.Context, err error) error {
	switch ctx.Err() {
	case nil:
		return err
	case context.DeadlineExceeded:
		return timeoutError{}
	}
	return canceledError{}
}

// timeoutError and canceledError are what package net makes of a context's errors.
type (
	timeoutError  struct{}
	canceledError struct{}
)

func (timeoutError) Error() string        { return "i/o timeout" }
func (timeoutError) Timeout() bool        { return true }
func (timeoutError) Temporary() bool      { return true }
func (timeoutError) Is(target error) bool { return target == context.DeadlineExceeded }

func (canceledError) Error() string        { return "operation was canceled" }
func (canceledError) Is(target error) bool { return target == context.Canceled }
