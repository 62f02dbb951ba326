package handshake

import (
	"context"
	"net"
	"strings"
	"syscall"

	"github.com/gosdp/gosdp/rdma/iwarp"
)

// verdict is what the first bytes of a connection mean.
type verdict uint8

const (
	undecided verdict = iota
	isPlain
	isMPA
)

// judge compares what has arrived with the key of an MPA Request. The first byte that
// differs decides.
func judge(b []byte) verdict {
	switch {
	case len(b) >= iwarp.KeyLen && string(b[:iwarp.KeyLen]) == iwarp.RequestKey:
		return isMPA
	case strings.HasPrefix(iwarp.RequestKey, string(b)):
		return undecided
	}
	return isPlain
}

// speaks waits until it is certain what the client on conn speaks, or ctx is done. It
// consumes nothing from a socket. From any other connection it has to read, and returns a
// connection that replays the bytes. An end or an error before a whole key means plain TCP.
func speaks(ctx context.Context, conn net.Conn) (v verdict, instead *replay) {
	sc, ok := conn.(syscall.Conn)
	if !ok || !isSocket(conn) {
		return readKey(ctx, conn)
	}
	rc, err := sc.SyscallConn()
	if err != nil {
		return readKey(ctx, conn)
	}
	return waitFirst(ctx, conn, rc), nil
}

// first copies the bytes that have arrived on conn to b, as many as fit, and returns what they
// mean. It consumes nothing, and does not block.
func first(conn net.Conn, b []byte) (n int, v verdict) {
	if sc, ok := conn.(syscall.Conn); ok && isSocket(conn) {
		if rc, err := sc.SyscallConn(); err == nil {
			rc.Control(func(fd uintptr) { n, v = peek(fd, b) })
		}
	}
	return n, v
}

// broken reports whether the connection was reset, or over a Unix socket, which knows no reset, the
// peer has closed it. It is false if the peer has only shut down its direction.
func broken(conn net.Conn) (is bool) {
	if sc, ok := conn.(syscall.Conn); ok && isSocket(conn) {
		if rc, err := sc.SyscallConn(); err == nil {
			rc.Control(func(fd uintptr) { is = failed(fd) })
		}
	}
	return is
}
