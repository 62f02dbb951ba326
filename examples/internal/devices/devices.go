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

// Of returns the name of the device that carries conn now, or the connection that conn
// wraps.
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

// A Recorder dials for a client that does not expose its connections, and keeps them.
type Recorder struct {
	Dial func(ctx context.Context, network, address string) (net.Conn, error)

	mu    sync.Mutex
	conns []net.Conn
}

// DialContext has the signature of http.Transport.DialContext.
func (r *Recorder) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := r.Dial(ctx, network, address)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.conns = append(r.conns, conn)
	return conn, nil
}

// Used returns the names of the devices that carry the connections now, without duplicates, and
// the number of connections. Those that were closed are on TCP.
func (r *Recorder) Used() (devices []string, conns int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, conn := range r.conns {
		devices = append(devices, Of(conn))
	}
	slices.Sort(devices)
	return slices.Compact(devices), len(r.conns)
}
