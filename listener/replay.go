package listener

import (
	"context"
	"errors"
	"net"
	"os"

	"github.com/gosdp/gosdp/internal/interrupt"
	"github.com/gosdp/gosdp/rdma/iwarp"
)

// A connection that is no socket cannot be looked at without consuming what is
// there: one that a limiter or another protocol has wrapped. replay gives what
// was read back to whoever reads next.
type replay struct {
	net.Conn
	rest []byte // belongs to the reader
}

func (r *replay) Read(b []byte) (int, error) {
	if len(r.rest) == 0 {
		return r.Conn.Read(b)
	}
	n := copy(b, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

// CloseWrite ends the direction towards the peer, if the connection below can.
func (r *replay) CloseWrite() error {
	if c, ok := r.Conn.(interface{ CloseWrite() error }); ok {
		return c.CloseWrite()
	}
	return errors.ErrUnsupported
}

// SetLinger is the connection's below, if it has that.
func (r *replay) SetLinger(sec int) error {
	if c, ok := r.Conn.(interface{ SetLinger(int) error }); ok {
		return c.SetLinger(sec)
	}
	return errors.ErrUnsupported
}

// readKey reads until it is certain what the client on c speaks, or ctx is done,
// and returns the connection as it was before.
func readKey(ctx context.Context, c net.Conn) (v verdict, instead *replay) {
	defer interrupt.Conn(ctx, c)()
	var b [iwarp.KeyLen]byte
	n := 0
	for v == undecided {
		k, err := c.Read(b[n:])
		n += k
		v = judge(b[:n])
		switch {
		case err == nil || v != undecided:
		case errors.Is(err, os.ErrDeadlineExceeded):
			if n == 0 {
				return undecided, nil
			}
			return undecided, &replay{Conn: c, rest: b[:n]}
		default:
			v = isPlain
		}
	}
	return v, &replay{Conn: c, rest: b[:n]}
}
