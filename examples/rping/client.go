package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"syscall"
	"time"

	"github.com/gosdp/gosdp/rdma"
	"github.com/gosdp/gosdp/rdma/iwarp"
)

// call runs the client.
func (o *options) call(out io.Writer) error {
	qp, err := o.connect()
	if err != nil {
		return err
	}
	c := newChannel(qp)
	err = c.ping(o, out)
	if err != nil {
		qp.Abort()
		return err
	}
	return c.close()
}

// handshakeTime limits the time of the MPA handshake.
const handshakeTime = 10 * time.Second

// connect makes a queue pair with the server. A server that supports only MPA revision 1
// closes the connection on a request of revision 2; then connect tries revision 1.
func (o *options) connect() (rdma.QueuePair, error) {
	revisions := []int{2, 1}
	if o.revision != 0 {
		revisions = []int{o.revision}
	}
	var err error
	for _, revision := range revisions {
		var qp rdma.QueuePair
		if qp, err = o.connectWith(revision); err == nil {
			return qp, nil
		}
		if !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) {
			break
		}
	}
	return nil, err
}

func (o *options) connectWith(revision int) (rdma.QueuePair, error) {
	address := net.JoinHostPort(cmp.Or(o.address, "localhost"), o.port)
	conn, err := net.DialTimeout("tcp", address, handshakeTime)
	if err != nil {
		return nil, err
	}
	conn.SetDeadline(time.Now().Add(handshakeTime))
	cfg := iwarp.Config{Revision: revision, NoCRC: o.noCRC, PeerToPeer: o.rtr}
	qp, _, err := iwarp.Connect(conn, cfg, nil)
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("cannot connect with MPA revision %d: %w", revision, err)
	}
	conn.SetDeadline(time.Time{})
	return qp, nil
}

// ping runs the client's side, once per ping:
//
//  1. It advertises the ping, which the server fetches by RDMA Read.
//  2. It advertises the buffer for the echo, which the server fills by RDMA Write.
//
// After each, the server says that it has finished.
func (c *channel) ping(o *options, out io.Writer) error {
	ping, echo := make([]byte, o.size), make([]byte, o.size)
	source, err := c.register(ping, rdma.RemoteRead)
	if err != nil {
		return err
	}
	sink, err := c.register(echo, rdma.RemoteWrite)
	if err != nil {
		return err
	}
	start := time.Now()
	for i := 0; o.count == 0 || i < o.count; i++ {
		fill(ping, i)
		for j := range echo {
			echo[j] = 0xFF // not used in pings
		}
		for _, buffer := range []advert{source, sink} {
			if err := c.send(buffer); err != nil {
				return err
			}
			if _, err := c.receive(); err != nil {
				return fmt.Errorf("ping %d: %w", i, unexpected(err))
			}
		}
		if o.validate && !bytes.Equal(ping, echo) {
			return fmt.Errorf("ping %d: received data differs from sent data", i)
		}
		if o.verbose {
			fmt.Fprintf(out, "ping data: %s\n", text(echo))
		}
	}
	each := time.Since(start) / time.Duration(o.count)
	fmt.Fprintf(out, "%d pings of %d bytes, %v each\n", o.count, o.size, each.Round(100*time.Nanosecond))
	return nil
}

// register registers b and returns its advert.
func (c *channel) register(b []byte, access rdma.Access) (advert, error) {
	region, err := c.qp.Register(b, access)
	return advert{va: region.VA, stag: region.STag, size: uint32(len(b))}, err
}

// fill writes rping's text for the i-th ping: a title, letters that start one further
// with each ping, and a zero byte.
func fill(b []byte, i int) {
	const first, letters = 'A', 'z' - 'A' + 1
	n := copy(b, fmt.Sprintf("rdma-ping-%d: ", i))
	for j := range b[n:] {
		b[n+j] = byte(first + (i+j)%letters)
	}
	b[len(b)-1] = 0
}

// text returns the bytes before the first zero byte.
func text(b []byte) []byte {
	if i := slices.Index(b, 0); i >= 0 {
		return b[:i]
	}
	return b
}

// unexpected returns io.ErrUnexpectedEOF for io.EOF.
func unexpected(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}
