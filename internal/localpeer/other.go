//go:build !linux

package localpeer

import (
	"errors"
	"io"
	"net"
	"syscall"
)

func set(syscall.RawConn, Role, bool) error { return errors.ErrUnsupported }

func other(net.Conn) (End, error) { return End{}, ErrBlind }

func marksMultipath() bool { return false }

func sighted() bool { return false }

func announceUnix(*net.UnixAddr) (io.Closer, error) { return nil, errors.ErrUnsupported }

func listensUnix(syscall.RawConn) bool { return false }

func unixAnnouncer(*net.UnixAddr) int { return 0 }

func unixServer(*net.UnixConn) int { return 0 }

func own(net.Conn) (End, error) { return End{}, ErrBlind }

func shows(net.Conn, Role) bool         { return false }
func marked(syscall.RawConn, Role) bool { return false }

func sees(syscall.RawConn) bool { return false }
