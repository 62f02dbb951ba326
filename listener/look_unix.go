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
	b := make([]byte, iwarp.KeyLen)
	stop := interrupt.Conn(ctx, c)
	err := rc.Read(func(fd uintptr) bool {
		_, v = peek(fd, b)
		return v != undecided
	})
	stop()
	if err != nil {
		// On a busy machine the time may be over before there was any to look.
		rc.Control(func(fd uintptr) { _, v = peek(fd, b) })
	}
	return v
}

// peek copies what has come to b, which has room for a key, and says what it means.
func peek(socket uintptr, b []byte) (int, verdict) {
	fd := int(socket)
	for {
		n, _, err := unix.Recvfrom(fd, b, unix.MSG_PEEK|unix.MSG_DONTWAIT)
		switch {
		case err == unix.EINTR:
			continue
		case err == unix.EAGAIN:
			return 0, undecided
		case err != nil || n == 0:
			return 0, isPlain
		}
		v := judge(b[:n])
		if v == undecided && hungUp(fd) {
			v = isPlain
		}
		return n, v
	}
}
