package sdp

import (
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"time"
)

// The options are those of net.TCPConn. What concerns the TCP connection goes to
// it: on iwarp it carries everything, and on any other device it stays, idle, to
// hold the addresses, and on verbs to ask for the peer's host.

// SetLinger sets how long Close waits for what was written to be out of this process:
// with sec < 0, the default, a second; with sec > 0 as many seconds; with 0 not at
// all: what can be dropped is, and the peer sees a reset.
func (c *Conn) SetLinger(sec int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return c.opError("set", errClosed)
	}
	c.linger = int32(max(-1, min(sec, math.MaxInt32)))
	return nil
}

// SetKeepAlive switches TCP's keepalive on or off. On iwarp and verbs it ends a
// connection whose peer is silently gone, as it does TCP's; on shm the kernel tells.
func (c *Conn) SetKeepAlive(keepalive bool) error {
	return option(c, func(t interface{ SetKeepAlive(bool) error }) error { return t.SetKeepAlive(keepalive) })
}

// SetKeepAlivePeriod sets how long the connection is idle before TCP's keepalive
// asks for the peer, and how often it asks then.
func (c *Conn) SetKeepAlivePeriod(d time.Duration) error {
	return option(c, func(t interface{ SetKeepAlivePeriod(time.Duration) error }) error { return t.SetKeepAlivePeriod(d) })
}

// SetKeepAliveConfig sets all of TCP's keepalive.
func (c *Conn) SetKeepAliveConfig(config net.KeepAliveConfig) error {
	return option(c, func(t interface {
		SetKeepAliveConfig(net.KeepAliveConfig) error
	}) error {
		return t.SetKeepAliveConfig(config)
	})
}

// SetNoDelay(false) is Nagle's algorithm: what does not fill a segment waits
// until the peer has acknowledged what was sent before. The default is true:
// nothing waits.
func (c *Conn) SetNoDelay(noDelay bool) error {
	return option(c, func(t interface{ SetNoDelay(bool) error }) error { return t.SetNoDelay(noDelay) })
}

// SetReadBuffer bounds how many bytes may wait here for Read, about: in the
// kernel, and in the private buffers that the peer may fill.
func (c *Conn) SetReadBuffer(bytes int) error {
	c.mu.Lock()
	if !c.closed {
		c.window = bytes
		c.target = c.targetBuffers()
	}
	c.mu.Unlock()
	return option(c, func(t interface{ SetReadBuffer(int) error }) error { return t.SetReadBuffer(bytes) })
}

// SetWriteBuffer sets how many bytes the kernel holds for the peer.
func (c *Conn) SetWriteBuffer(bytes int) error {
	return option(c, func(t interface{ SetWriteBuffer(int) error }) error { return t.SetWriteBuffer(bytes) })
}

// MultipathTCP reports whether the TCP connection uses multipath TCP.
func (c *Conn) MultipathTCP() (bool, error) {
	if t, ok := c.tcp.(interface{ MultipathTCP() (bool, error) }); ok {
		return t.MultipathTCP()
	}
	return false, nil
}

// errNoFile says why a connection has no file: what a duplicate of the socket
// carries are RDMA messages, whose state is in this process.
var errNoFile = errors.New("the socket carries RDMA messages and cannot be handed over")

// File fails: what the socket carries are RDMA messages, and their state is in
// this process.
func (c *Conn) File() (*os.File, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, c.opError("file", errClosed)
	}
	return nil, c.opError("file", fmt.Errorf("%w: %w", errNoFile, errors.ErrUnsupported))
}

// option has set work on the TCP connection, if that has the methods of T: a
// connection of a program's own making may lack them.
func option[T any](c *Conn, set func(T) error) error {
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
