package listener

import (
	"context"
	"net"
	"strings"
	"syscall"

	"github.com/gosdp/gosdp/rdma/iwarp"
)

// verdict is what the first bytes of a connection say.
type verdict uint8

const (
	undecided verdict = iota
	isPlain
	isMPA
)

// judge compares what has come with the key of an MPA Request. The first byte
// that differs decides.
func judge(b []byte) verdict {
	switch {
	case len(b) >= iwarp.KeyLen && string(b[:iwarp.KeyLen]) == iwarp.RequestKey:
		return isMPA
	case strings.HasPrefix(iwarp.RequestKey, string(b)):
		return undecided
	}
	return isPlain
}

// speaks waits until it is certain what the client on c speaks, or ctx is
// done, and consumes nothing; or, if it had to, returns what stands for c from now
// on. An end or an error without a whole key is plain.
func speaks(ctx context.Context, c net.Conn) (v verdict, instead *replay) {
	sc, ok := c.(syscall.Conn)
	if !ok || !isSocket(c) {
		return readKey(ctx, c)
	}
	rc, err := sc.SyscallConn()
	if err != nil {
		return readKey(ctx, c)
	}
	return look(ctx, c, rc), nil
}

// first copies the bytes to b that are there already, as many as fit, and says
// what they mean. It consumes nothing.
func first(c net.Conn, b []byte) (n int, v verdict) {
	if sc, ok := c.(syscall.Conn); ok && isSocket(c) {
		if rc, err := sc.SyscallConn(); err == nil {
			rc.Control(func(fd uintptr) { n, v = peek(fd, b) })
		}
	}
	return n, v
}
