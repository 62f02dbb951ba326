//go:build unix

package listener

import (
	"context"
	"net"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/gosdp/gosdp/internal/interrupt"
	"github.com/gosdp/gosdp/rdma/iwarp"
)

// look parks in the netpoller, which reports each arrival although the bytes
// before it are still there.
func look(ctx context.Context, c net.Conn, rc syscall.RawConn) verdict {
	var v verdict
	stop := interrupt.Conn(ctx, c)
	err := rc.Read(func(fd uintptr) bool {
		v = peek(fd)
		return v != undecided
	})
	stop()
	if err != nil {
		// On a busy machine the time may be over before there was any to look.
		rc.Control(func(fd uintptr) { v = peek(fd) })
	}
	return v
}

func peek(socket uintptr) verdict {
	fd := int(socket)
	var b [iwarp.KeyLen]byte
	for {
		n, _, err := unix.Recvfrom(fd, b[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
		switch {
		case err == unix.EINTR:
			continue
		case err == unix.EAGAIN:
			return undecided
		case err != nil || n == 0:
			return isPlain
		}
		if v := judge(b[:n]); v != undecided || !hungUp(fd) {
			return v
		}
		return isPlain
	}
}
