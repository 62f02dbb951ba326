package handshake

import (
	"context"
	"net"
	"strings"
	"syscall"
	"time"

	"github.com/gosdp/gosdp/rdma/iwarp/mpa"
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
	case len(b) >= mpa.KeyLen && string(b[:mpa.KeyLen]) == mpa.RequestKey:
		return isMPA
	case strings.HasPrefix(mpa.RequestKey, string(b)):
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
		rc.Control(func(fd uintptr) { yes = peek(fd, make([]byte, mpa.KeyLen)) != undecided })
	}
	return yes
}

// speaks waits until it is certain what the client on conn speaks, or ctx is done. It
// consumes nothing from a socket. From any other connection it has to read, and returns a
// connection that replays the bytes. An end or an error before a whole key means plain TCP.
func speaks(ctx context.Context, conn net.Conn) (v verdict, instead net.Conn) {
	if sc, ok := conn.(syscall.Conn); ok && isSocket(conn) {
		if rc, err := sc.SyscallConn(); err == nil {
			return waitFirst(ctx, rc), conn
		}
	}
	return readKey(ctx, conn)
}

// waitFirst is speaks for a socket. It leaves the deadlines to the program.
func waitFirst(ctx context.Context, rc syscall.RawConn) (v verdict) {
	b := make([]byte, mpa.KeyLen)
	var a arrivals
	defer a.close()
	for {
		late := ctx.Err() != nil
		if rc.Control(func(fd uintptr) { v = peek(fd, b) }) != nil { // the program has closed it
			return isPlain
		}
		if v != undecided || late {
			return v
		}
		a.wait(ctx, rc)
	}
}

// sleep ends after d, or when ctx is done.
func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
