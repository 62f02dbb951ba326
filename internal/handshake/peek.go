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

// arrived reports whether bytes, or the end, have arrived on conn and are not read. It returns false if conn does not tell.
func arrived(conn net.Conn) (yes bool) {
	sc, ok := conn.(syscall.Conn)
	if !ok {
		return false
	}
	if rc, err := sc.SyscallConn(); err == nil {
		rc.Control(func(fd uintptr) { yes = peek(fd, make([]byte, iwarp.KeyLen)) != undecided })
	}
	return yes
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
