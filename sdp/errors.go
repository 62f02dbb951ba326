package sdp

import (
	"net"
	"os"
	"syscall"
)

var errClosed = net.ErrClosed

// opError returns err as package net would: as a *net.OpError with the operation and both
// addresses. If err is nil, it returns nil.
func (c *conn) opError(op string, err error) error {
	if err == nil {
		return nil
	}
	err = systemError(op, err)
	local := c.localAddr()
	return &net.OpError{Op: op, Net: local.Network(), Source: local, Addr: c.remoteAddr(), Err: err}
}

// systemError returns what a socket reports about its peer as package net has it: as an
// *os.SyscallError with the name of the system call for op. Other errors stay as they are.
func systemError(op string, err error) error {
	call, has := "", ""
	switch op {
	case "read", "writeto":
		call = "read"
	case "write", "readfrom":
		call = "write"
	case "writev":
		call = op
	}
	inner := err
	if s, ok := err.(*os.SyscallError); ok {
		has, inner = s.Syscall, s.Err
	}
	errno, ok := inner.(syscall.Errno)
	if !ok || call == "" || has == call || has != "" && has != "read" && has != "write" {
		return err
	}
	return os.NewSyscallError(call, errno)
}

// cause returns the error inside a *net.OpError, and any other error as it is.
func cause(err error) error {
	if op, ok := err.(*net.OpError); ok {
		return op.Err
	}
	return err
}
