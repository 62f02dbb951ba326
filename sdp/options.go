package sdp

import (
	"errors"
	"fmt"
	"math"
	"net"
	"time"
)

// The options are those of net.TCPConn. What concerns the TCP connection goes to
// it: on iwarp it carries everything, and on any other device it stays, idle, to
// hold the addresses, and on verbs to ask for the peer's host.

func (c *conn) SetLinger(sec int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return c.opError("set", errClosed)
	}
	c.linger = int32(max(-1, min(sec, math.MaxInt32)))
	return nil
}

func (c *conn) SetKeepAlive(keepalive bool) error {
	return option(c, func(t interface{ SetKeepAlive(bool) error }) error { return t.SetKeepAlive(keepalive) })
}

func (c *conn) SetKeepAlivePeriod(d time.Duration) error {
	return option(c, func(t interface{ SetKeepAlivePeriod(time.Duration) error }) error { return t.SetKeepAlivePeriod(d) })
}

func (c *conn) SetKeepAliveConfig(config net.KeepAliveConfig) error {
	return option(c, func(t interface {
		SetKeepAliveConfig(net.KeepAliveConfig) error
	}) error {
		return t.SetKeepAliveConfig(config)
	})
}

func (c *conn) SetNoDelay(noDelay bool) error {
	return option(c, func(t interface{ SetNoDelay(bool) error }) error { return t.SetNoDelay(noDelay) })
}

func (c *conn) SetReadBuffer(bytes int) error {
	c.mu.Lock()
	if !c.closed {
		c.promise.setWindow(bytes)
	}
	c.mu.Unlock()
	return option(c, func(t interface{ SetReadBuffer(int) error }) error { return t.SetReadBuffer(bytes) })
}

func (c *conn) SetWriteBuffer(bytes int) error {
	return option(c, func(t interface{ SetWriteBuffer(int) error }) error { return t.SetWriteBuffer(bytes) })
}

func (c *conn) MultipathTCP() (bool, error) {
	if t, ok := c.tcp.(interface{ MultipathTCP() (bool, error) }); ok {
		return t.MultipathTCP()
	}
	return false, nil
}

// option has set work on the TCP connection, if that has the methods of T: a
// connection of a program's own making may lack them.
func option[T any](c *conn, set func(T) error) error {
	c.mu.Lock()
	closed := c.closed
	c.mu.Unlock()
	if closed {
		return c.opError("set", errClosed)
	}
	t, ok := c.tcp.(T)
	if !ok {
		return c.opError("set", fmt.Errorf("%T has no such option: %w", c.tcp, errors.ErrUnsupported))
	}
	if err := set(t); err != nil {
		return c.opError("set", cause(err))
	}
	return nil
}
