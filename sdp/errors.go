package sdp

import "net"

var errClosed = net.ErrClosed

// opError returns err as package net returns it: a *net.OpError that names the
// operation and both addresses. nil stays nil.
func (c *conn) opError(op string, err error) error {
	if err == nil {
		return nil
	}
	return &net.OpError{Op: op, Net: c.LocalAddr().Network(), Source: c.LocalAddr(), Addr: c.RemoteAddr(), Err: err}
}
