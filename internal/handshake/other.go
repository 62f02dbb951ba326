//go:build !linux

package handshake

import (
	"context"
	"errors"
	"net"
	"syscall"
	"time"
)

// readHost knows no name for this host that no other host has.
func readHost() string { return "" }

// tos returns 0: no device here uses it.
func tos(net.Conn) uint8 { return 0 }

// sinceArrival knows nothing.
func sinceArrival(net.Conn) (since time.Duration, known bool) { return 0, false }

// awaitFirst is not there: this system does not tell whether a connection has received a byte
// that the program has read.
func awaitFirst(net.Conn, time.Duration) (func() bool, error) { return nil, errors.ErrUnsupported }

// arrivals is only a pause: the poller of package net, which would report arrivals, has the
// program's deadlines, and on Windows reports one only after earlier bytes have been read.
type arrivals struct{}

func (*arrivals) wait(ctx context.Context, _ syscall.RawConn) { sleep(ctx, time.Millisecond) }

func (*arrivals) close() {}
