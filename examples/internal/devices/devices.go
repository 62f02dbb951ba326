// Package devices reports which devices carry an example's connections.
package devices

import (
	"context"
	"net"
	"slices"
	"sync"

	"github.com/gosdp/gosdp/sdp"
)

// Plain is the device name of a plain TCP connection.
const Plain = "tcp"

// Of returns the name of what carries conn, or the connection that conn wraps. A
// connection that has moved to shared memory counts as one of shm, also after it has come home.
func Of(conn net.Conn) string {
	for {
		switch c := conn.(type) {
		case *sdp.Conn:
			if s := c.Stats(); s.Moves > 0 || s.ShmReceived > 0 {
				return "shm"
			}
			return c.Device()
		case interface{ NetConn() net.Conn }: // such as a *tls.Conn
			conn = c.NetConn()
		default:
			return Plain
		}
	}
}

// A Recorder dials for a client that does not expose its connections, and records them.
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

// Used returns the names of the devices used, without duplicates, and the number of
// connections.
func (r *Recorder) Used() (devices []string, conns int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, conn := range r.conns {
		devices = append(devices, Of(conn))
	}
	slices.Sort(devices)
	return slices.Compact(devices), len(r.conns)
}
