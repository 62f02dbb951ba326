package main

import (
	"context"
	"errors"
	"io"
	"log"
	"net"
	"sync"
	"time"

	"github.com/gosdp/gosdp/sdp"
)

const (
	// dialTimeout is how long a client waits for its other side. The kernel's own
	// limit, two minutes of SYNs, is longer than most clients' patience.
	dialTimeout = 30 * time.Second
	acceptPause = 100 * time.Millisecond
)

// conn is what a relay needs of a connection. ReadFrom and WriteTo are what
// io.Copy looks for, to move the bytes without a buffer of its own.
type conn interface {
	net.Conn
	io.ReaderFrom
	io.WriterTo
	CloseWrite() error
	SetLinger(sec int) error
}

var _ = []conn{(*net.TCPConn)(nil), (*sdp.Conn)(nil)}

// serve relays every connection that comes to the listener, until that is
// closed and the last relayed connection has ended. Those that have not when cut
// ends are reset.
func serve(cut context.Context, listener net.Listener, dial func(context.Context) (net.Conn, error)) {
	var relays sync.WaitGroup
	defer relays.Wait()
	for {
		client, err := listener.Accept()
		switch {
		case err == nil:
			relays.Go(func() { relay(cut, client.(conn), dial) })
		case errors.Is(err, net.ErrClosed):
			return
		default: // no descriptors left, most likely; connections that end give some back
			log.Print(err)
			time.Sleep(acceptPause)
		}
	}
}

// relay connects the client to its server, and returns when they are through
// with each other.
func relay(cut context.Context, client conn, dial func(context.Context) (net.Conn, error)) {
	ctx, cancel := context.WithTimeout(cut, dialTimeout)
	dialled, err := dial(ctx)
	cancel()
	if err != nil {
		log.Printf("%s: %v", client.RemoteAddr(), err)
		reset(client)
		return
	}
	server := dialled.(conn)
	uncut := context.AfterFunc(cut, func() { reset(client, server) })
	defer uncut()

	var upward sync.WaitGroup
	upward.Go(func() { pass(server, client) })
	pass(client, server)
	upward.Wait()
	client.Close()
	server.Close()
}

// pass copies one direction, and ends it as it was ended: an end of file is
// passed on alone, since the other direction may go on for long, and anything
// else resets both connections.
func pass(to, from conn) {
	_, err := io.Copy(to, from)
	if err == nil {
		err = to.CloseWrite()
	}
	if err != nil {
		reset(to, from)
	}
}

// reset closes connections so that their peers see a reset and no end.
func reset(conns ...conn) {
	for _, c := range conns {
		c.SetLinger(0)
		c.Close()
	}
}
