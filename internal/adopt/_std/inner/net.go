// This package is not part of the Go distribution. It is what the library, which package net
// imports, has in place of package net: connections on that package's sockets, Unix sockets, and
// the types that the library uses. See docs/adoption.md of github.com/gosdp/gosdp.

// Package net replaces package net for the library inside the standard library. What the library
// does not call there returns an error.
package net

import (
	"errors"
	"internal/poll"
	"os"
	"strings"
	"syscall"
	"time"
)

// These are those of package net.

type Addr interface {
	Network() string
	String() string
}

type Conn interface {
	Read(b []byte) (n int, err error)
	Write(b []byte) (n int, err error)
	Close() error
	LocalAddr() Addr
	RemoteAddr() Addr
	SetDeadline(t time.Time) error
	SetReadDeadline(t time.Time) error
	SetWriteDeadline(t time.Time) error
}

type Listener interface {
	Accept() (Conn, error)
	Close() error
	Addr() Addr
}

type Error interface {
	error
	Timeout() bool
	Temporary() bool
}

type Buffers [][]byte

type KeepAliveConfig struct {
	Enable   bool
	Idle     time.Duration
	Interval time.Duration
	Count    int
}

// ErrClosed is the same value as in package net.
var ErrClosed error = poll.ErrNetClosing

// errNotHere is the error of functions that the library does not call.
var errNotHere = errors.New("net: not in the library's part of the package")

type UnknownNetworkError string

func (e UnknownNetworkError) Error() string   { return "unknown network " + string(e) }
func (e UnknownNetworkError) Timeout() bool   { return false }
func (e UnknownNetworkError) Temporary() bool { return false }

type OpError struct {
	Op     string
	Net    string
	Source Addr
	Addr   Addr
	Err    error
}

func (e *OpError) Unwrap() error { return e.Err }

// Error returns the same text as the method of package net.
func (e *OpError) Error() string {
	if e == nil {
		return "<nil>"
	}
	var ends []string
	for _, a := range []Addr{e.Source, e.Addr} {
		if a != nil {
			ends = append(ends, a.String())
		}
	}
	var words []string
	for _, w := range []string{e.Op, e.Net, strings.Join(ends, "->")} {
		if w != "" {
			words = append(words, w)
		}
	}
	return strings.Join(words, " ") + ": " + e.Err.Error()
}

func (e *OpError) Timeout() bool {
	t, ok := e.inside().(interface{ Timeout() bool })
	return ok && t.Timeout()
}

func (e *OpError) Temporary() bool {
	if e.Op == "accept" && isConnError(e.Err) {
		return true
	}
	t, ok := e.inside().(interface{ Temporary() bool })
	return ok && t.Temporary()
}

// inside returns the error without the name of the system call.
func (e *OpError) inside() error {
	if s, ok := e.Err.(*os.SyscallError); ok {
		return s.Err
	}
	return e.Err
}

func isConnError(err error) bool {
	return errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.ECONNABORTED)
}
