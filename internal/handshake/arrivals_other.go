//go:build !linux

package handshake

import (
	"context"
	"syscall"
	"time"
)

// arrivals is only a pause: the poller of package net, which would report arrivals, has the
// program's deadlines, and on Windows reports one only after earlier bytes have been read.
type arrivals struct{}

func (*arrivals) wait(ctx context.Context, _ syscall.RawConn) { sleep(ctx, time.Millisecond) }

func (*arrivals) close() {}
