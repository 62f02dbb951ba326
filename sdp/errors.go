package sdp

import "net"

var errClosed = net.ErrClosed

// opError returns err as package net would: as a *net.OpError with the operation and both
// addresses. If err is nil, it returns nil.
func (c *conn) opError(op string, err error) error {
	if err == nil {
		return nil
	}
	local := c.localAddr()
	return &net.OpError{Op: op, Net: local.Network(), Source: local, Addr: c.remoteAddr(), Err: err}
}

// cause returns the error inside a *net.OpError, and any other error as it is.
func cause(err error) error {
	if op, ok := err.(*net.OpError); ok {
		return op.Err
	}
	return err
}
