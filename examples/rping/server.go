package main

import (
	"fmt"
	"io"
	"net"
	"time"

	"github.com/gosdp/gosdp/rdma"
	"github.com/gosdp/gosdp/rdma/iwarp"
)

// maxPing is the longest ping that a server accepts.
const maxPing = 64 << 10

// serve runs the server for one client.
func (o *options) serve(out, notes io.Writer) error {
	qp, err := o.accept(notes)
	if err != nil {
		return err
	}
	if !o.verbose {
		out = io.Discard
	}
	c := newChannel(qp)
	if err := c.pong(out); err != nil {
		qp.Abort()
		return err
	}
	return c.close()
}

// accept waits for a client and makes a queue pair with it.
func (o *options) accept(notes io.Writer) (rdma.QueuePair, error) {
	listener, err := net.Listen("tcp", net.JoinHostPort(o.address, o.port))
	if err != nil {
		return nil, err
	}
	defer listener.Close()
	fmt.Fprintln(notes, "listening on", listener.Addr())
	conn, err := listener.Accept()
	if err != nil {
		return nil, err
	}
	conn.SetDeadline(time.Now().Add(handshakeTime))
	request, err := iwarp.ReadRequest(conn)
	if err == nil {
		var qp rdma.QueuePair
		qp, err = request.Accept(iwarp.Config{NoCRC: o.noCRC}, nil)
		if err == nil {
			conn.SetDeadline(time.Time{})
			return qp, nil
		}
	}
	conn.Close()
	return nil, err
}

// pong runs the server's side until the client closes the channel.
func (c *channel) pong(out io.Writer) error {
	buffer := make([]byte, maxPing)
	for {
		source, err := c.receive()
		switch {
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		case source.size > maxPing:
			return fmt.Errorf("ping of %d bytes exceeds the limit of %d", source.size, maxPing)
		}
		ping := buffer[:source.size]
		if err := c.read(ping, source); err != nil {
			return unexpected(err)
		}
		fmt.Fprintf(out, "server ping data: %s\n", text(ping))
		if err := c.send(advert{}); err != nil {
			return err
		}

		sink, err := c.receive()
		if err != nil {
			return unexpected(err)
		}
		echo := ping[:min(len(text(ping))+1, len(ping))] // with the zero byte
		if len(echo) > int(sink.size) {
			return fmt.Errorf("client's buffer is too small: %d bytes, ping of %d", sink.size, len(echo))
		}
		if err := c.write(echo, sink); err != nil {
			return unexpected(err)
		}
		if err := c.send(advert{}); err != nil {
			return err
		}
	}
}
