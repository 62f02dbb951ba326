package engine

import (
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"time"

	"github.com/gosdp/gosdp/internal/netname"
)

// The options of an SDP connection. On iwarp the TCP connection carries everything. On verbs it
// stays open without traffic, because it holds the addresses, and because its keepalive finds that
// the peer's host has disappeared.

// Device returns the name of the device.
func (c *Conn) Device() string { return c.device }

// SetDeadline sets both deadlines.
func (c *Conn) SetDeadline(t time.Time) error {
	if err := c.SetReadDeadline(t); err != nil {
		return err
	}
	return c.SetWriteDeadline(t)
}

// SetReadDeadline sets the deadline of Reads.
func (c *Conn) SetReadDeadline(t time.Time) error { return c.setDeadline(&c.read, t) }

// SetWriteDeadline sets the deadline of Writes.
func (c *Conn) SetWriteDeadline(t time.Time) error { return c.setDeadline(&c.write, t) }

// SetLinger sets what Close does with data that the peer has not acknowledged.
func (c *Conn) SetLinger(sec int) error {
	c.mu.Lock()
	closed := c.phase.closed()
	if !closed {
		c.closer.linger = int32(max(-1, min(sec, math.MaxInt32)))
	}
	c.mu.Unlock()
	if closed {
		return c.opError("set", errClosed)
	}
	return nil
}

// SetKeepAlive sets the TCP socket's option.
func (c *Conn) SetKeepAlive(keepalive bool) error {
	return option(c, func(t interface{ SetKeepAlive(bool) error }) error { return t.SetKeepAlive(keepalive) })
}

// SetKeepAlivePeriod sets the TCP socket's option.
func (c *Conn) SetKeepAlivePeriod(d time.Duration) error {
	return option(c, func(t interface{ SetKeepAlivePeriod(time.Duration) error }) error { return t.SetKeepAlivePeriod(d) })
}

// SetKeepAliveConfig sets the TCP socket's options.
func (c *Conn) SetKeepAliveConfig(config net.KeepAliveConfig) error {
	return option(c, func(t interface {
		SetKeepAliveConfig(net.KeepAliveConfig) error
	}) error {
		return t.SetKeepAliveConfig(config)
	})
}

// SetNoDelay sets the TCP socket's option.
func (c *Conn) SetNoDelay(noDelay bool) error {
	if c.qp.Limits().OverTCP {
		// Nagle's algorithm would hold a Write back until the peer's host has acknowledged
		// what the library has sent, which takes 40 ms if the peer has nothing to say.
		noDelay = true
	}
	return option(c, func(t interface{ SetNoDelay(bool) error }) error { return t.SetNoDelay(noDelay) })
}

// SetReadBuffer sets how many bytes may be unread, in the library and in the socket.
func (c *Conn) SetReadBuffer(bytes int) error {
	c.mu.Lock()
	if !c.phase.closed() {
		c.promise.setWindow(bytes)
	}
	c.mu.Unlock()
	if c.qp.Limits().OverTCP {
		// The credit for this end's Writes arrives after the peer's data. A smaller buffer
		// would slow down both directions, and over TCP it slows down one.
		bytes = max(bytes, leastKernelBuffer)
	}
	return localOnly(option(c, func(t interface{ SetReadBuffer(int) error }) error { return t.SetReadBuffer(bytes) }))
}

// SetWriteBuffer sets the TCP socket's option.
func (c *Conn) SetWriteBuffer(bytes int) error {
	return localOnly(option(c, func(t interface{ SetWriteBuffer(int) error }) error { return t.SetWriteBuffer(bytes) }))
}

// MultipathTCP reports whether the TCP connection uses multipath TCP.
func (c *Conn) MultipathTCP() (bool, error) {
	if t, ok := c.tcp.(interface{ MultipathTCP() (bool, error) }); ok {
		return t.MultipathTCP()
	}
	return false, nil
}

// File fails: the stream is not on the socket.
func (c *Conn) File() (*os.File, error) {
	return nil, c.opError("file", fmt.Errorf("stream is on %s: %w", c.device, errors.ErrUnsupported))
}

// option calls set with the TCP connection, if that has the methods of T: a connection of
// another type, which the program has made, may lack them.
func option[T any](c *Conn, set func(T) error) error {
	c.mu.Lock()
	closed := c.phase.closed()
	c.mu.Unlock()
	if closed {
		return c.opError("set", errClosed)
	}
	t, ok := c.tcp.(T)
	if !ok {
		return c.opError("set", fmt.Errorf("socket option not supported by %T: %w", c.tcp, errors.ErrUnsupported))
	}
	if err := set(t); err != nil {
		return c.opError("set", netname.Cause(err))
	}
	return nil
}
