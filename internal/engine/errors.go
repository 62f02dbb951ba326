package engine

import (
	"net"
	"os"
	"syscall"

	"github.com/gosdp/gosdp/internal/netname"
)

var errClosed = net.ErrClosed

// opError returns err as package net would: as a *net.OpError with the operation, the network as the
// program named it, and both addresses. If err is nil, it returns nil. The caller must not hold mu:
// the TCP connection may be of the program's own type, whose methods may block.
func (c *Conn) opError(op string, err error) error {
	if err == nil {
		return nil
	}
	err = systemError(op, err)
	local, name := c.LocalAddr(), c.network.String()
	if c.network == netname.Unnamed {
		name = local.Network()
	}
	return &net.OpError{Op: op, Net: name, Source: local, Addr: c.RemoteAddr(), Err: err}
}

// once returns err, or then if err is a reset that a call has returned before: a kernel reports a
// reset to one call, and to later ones an end, or a broken pipe.
func (c *Conn) once(err, then error) error {
	if isReset(err) && c.told.Swap(true) {
		return then
	}
	return err
}

// isReset reports whether err is a reset, or the loss of the peer's host, as a kernel reports them.
// Violations and Terminates, which TCP does not have, stay.
func isReset(err error) bool {
	if s, ok := err.(*os.SyscallError); ok {
		err = s.Err
	}
	return err == syscall.ECONNRESET || err == syscall.ETIMEDOUT
}

// localOnly makes err, of opError, name only the local address, as package net does if a deadline or
// the size of a buffer cannot be set, or for RawConn.Control.
func localOnly(err error) error {
	if op, ok := err.(*net.OpError); ok {
		op.Source, op.Addr = nil, op.Source
	}
	return err
}

// systemError returns a reset, a broken pipe or bad memory as package net has it: as an
// *os.SyscallError with the name of the system call for op. Other errors stay as they are.
func systemError(op string, err error) error {
	inner, called := err, ""
	if s, ok := err.(*os.SyscallError); ok {
		inner, called = s.Err, s.Syscall
	}
	if inner != syscall.ECONNRESET && inner != syscall.EPIPE && inner != syscall.EFAULT && inner != syscall.ENOTCONN {
		return err
	}
	call := op
	switch op {
	case "close":
		call = "shutdown"
	case "read", "write", "writev":
	default:
		return err
	}
	if call == called {
		return err
	}
	return os.NewSyscallError(call, inner)
}
