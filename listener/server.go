package listener

import (
	"context"
	"net"
)

// Serve takes a single connection, that the caller has accepted, through all the
// stages, as a Listener with cfg would, and returns when it is up, ctx is done,
// or it has failed. With an error it has closed the connection.
func Serve(ctx context.Context, c net.Conn, cfg Config) (*Incoming, error) {
	l := &Listener{cfg: cfg, host: thisHost()}
	defer l.places.close()
	h := &handshake{l: l, conn: c, expected: possible}
	h.begin(ctx)
	defer h.cancel()
	in, err := h.run()
	h.over(in)
	return in, err
}
