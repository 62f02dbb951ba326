package handshake

import (
	"context"
	"errors"
	"net"
	"os"

	"github.com/gosdp/gosdp/internal/interrupt"
	"github.com/gosdp/gosdp/rdma/iwarp/mpa"
)

// replay is a connection that returns bytes which were read from it before. A connection that
// is not a socket, such as one wrapped by a limiter or another protocol, can only be examined
// by reading from it.
type replay struct {
	net.Conn
	rest []byte // used by Read alone
}

func (r *replay) Read(b []byte) (int, error) {
	if len(r.rest) == 0 {
		return r.Conn.Read(b)
	}
	n := copy(b, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

// original returns the program's connection, which has all methods of its type, if all that was read
// from it before has been returned.
func original(conn net.Conn) net.Conn {
	for {
		r, ok := conn.(*replay)
		if !ok || len(r.rest) > 0 {
			return conn
		}
		conn = r.Conn
	}
}

// CloseWrite calls CloseWrite of the underlying connection, if it has that method.
func (r *replay) CloseWrite() error {
	if c, ok := r.Conn.(interface{ CloseWrite() error }); ok {
		return c.CloseWrite()
	}
	return errors.ErrUnsupported
}

// SetLinger calls SetLinger of the underlying connection, if it has that method.
func (r *replay) SetLinger(sec int) error {
	if c, ok := r.Conn.(interface{ SetLinger(int) error }); ok {
		return c.SetLinger(sec)
	}
	return errors.ErrUnsupported
}

// readKey reads until it is certain what the client on conn speaks, or ctx is done. It
// returns a connection from which the same bytes can be read again.
func readKey(ctx context.Context, conn net.Conn) (v verdict, instead net.Conn) {
	defer interrupt.Conn(ctx, conn)()
	var b [mpa.KeyLen]byte
	n := 0
	for v == undecided {
		k, err := conn.Read(b[n:])
		n += k
		v = judge(b[:n])
		if err != nil && v == undecided {
			if errors.Is(err, os.ErrDeadlineExceeded) && ctx.Err() != nil { // else it is the program's deadline
				break
			}
			v = isPlain
		}
	}
	return v, original(&replay{Conn: conn, rest: b[:n]})
}
