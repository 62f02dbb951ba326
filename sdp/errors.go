package sdp

import (
	"errors"
	"fmt"
	"net"

	"github.com/gosdp/gosdp/internal/handshake"
)

var errClosed = net.ErrClosed

// opError returns err as package net returns it: a *net.OpError that names the
// operation and both addresses. nil stays nil.
func (c *conn) opError(op string, err error) error {
	if err == nil {
		return nil
	}
	return &net.OpError{Op: op, Net: c.LocalAddr().Network(), Source: c.LocalAddr(), Addr: c.RemoteAddr(), Err: err}
}

// NotSDPError says that the peer speaks plain TCP.
type NotSDPError struct {
	Addr net.Addr // the peer's
	Err  error    // what came instead of an MPA Reply

	reason string
}

// Error returns `peer at 127.0.0.1:80 does not speak SDP: it answered "HTTP/1.1
// 400 Bad"`.
func (e *NotSDPError) Error() string {
	reason := e.reason
	if reason == "" {
		reason = e.Err.Error()
	}
	return fmt.Sprintf("peer at %v does not speak SDP: %s", e.Addr, reason)
}

// Unwrap returns e.Err.
func (e *NotSDPError) Unwrap() error { return e.Err }

// publicError returns a *NotSDPError in place of the handshake's.
func publicError(err error) error {
	var not *handshake.NotSDPError
	if errors.As(err, &not) {
		return &NotSDPError{Addr: not.Addr, Err: not.Err, reason: not.Reason()}
	}
	return err
}
