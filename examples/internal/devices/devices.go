// Package devices reports which devices carry an example's connections.
package devices

import (
	"context"
	"net"
	"slices"
	"sync"
)

// Plain is the device name of a plain TCP connection.
const Plain = "tcp"

// Of returns the name of the RDMA device that carries conn, or the connection that
// conn wraps.
func Of(conn net.Conn) string {
	for {
		switch c := conn.(type) {
		case interface{ Device() string }: // an *sdp.Conn
			return c.Device()
		case interface{ NetConn() net.Conn }: // such as a *tls.Conn
			conn = c.NetConn()
		default:
			return Plain
		}
	}
}

// A Recorder dials for a client that does not expose its connections, and records the
// device of each.
type Recorder struct {
	Dial func(ctx context.Context, network, address string) (net.Conn, error)

	mu      sync.Mutex
	devices []string
}

// DialContext has the signature of http.Transport.DialContext.
func (r *Recorder) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := r.Dial(ctx, network, address)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.devices = append(r.devices, Of(conn))
	return conn, nil
}

// Used returns the names of the devices used, without duplicates, and the number of
// connections.
func (r *Recorder) Used() (devices []string, conns int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Compact(slices.Sorted(slices.Values(r.devices))), len(r.devices)
}
