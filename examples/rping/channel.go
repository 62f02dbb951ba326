package main

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/gosdp/gosdp/rdma"
)

// advert is rping's only message. It tells the peer where a buffer is. The server's
// adverts are empty and tell the client to continue.
type advert struct {
	va   uint64
	stag rdma.STag
	size uint32
}

const advertLen = 16

// channel is one end of a connected queue pair. It has one work request at a time, and
// waits until that has completed.
type channel struct {
	qp   rdma.QueuePair
	done [1]rdma.Completion
}

// newChannel posts receive buffers for adverts. The peer sends one advert at a time, but
// may send the next before the last one's buffer is released.
func newChannel(qp rdma.QueuePair) *channel {
	qp.ProvideReceive(2, advertLen)
	return &channel{qp: qp}
}

// send sends an advert. The device never refuses a message without payload.
func (c *channel) send(a advert) error {
	var b [advertLen]byte
	binary.BigEndian.PutUint64(b[0:], a.va)
	binary.BigEndian.PutUint32(b[8:], uint32(a.stag))
	binary.BigEndian.PutUint32(b[12:], a.size)
	_, err := c.qp.PostSend([]rdma.SendWR{{Header: b[:]}})
	c.qp.Flush()
	return err
}

// receive waits for an advert. It returns io.EOF when the peer has closed the channel.
func (c *channel) receive() (advert, error) {
	message, err := c.wait(rdma.OpReceive)
	if err != nil {
		return advert{}, err
	}
	defer message.Buffer.Release()
	b := message.Buffer.Bytes
	if len(b) != advertLen {
		return advert{}, fmt.Errorf("malformed advertisement: got %d bytes, want %d", len(b), advertLen)
	}
	return advert{
		va:   binary.BigEndian.Uint64(b[0:]),
		stag: rdma.STag(binary.BigEndian.Uint32(b[8:])),
		size: binary.BigEndian.Uint32(b[12:]),
	}, nil
}

// read fills local from the peer's buffer by RDMA Read.
func (c *channel) read(local []byte, from advert) error {
	if err := c.qp.PostRead(rdma.ReadWR{Local: local, STag: from.stag, VA: from.va}); err != nil {
		return err
	}
	c.qp.Flush()
	_, err := c.wait(rdma.OpRead)
	return err
}

// write copies local into the peer's buffer by RDMA Write. When it returns, local may be
// reused. A message sent afterwards arrives after the data.
func (c *channel) write(local []byte, to advert) error {
	if err := c.qp.PostWrite(rdma.WriteWR{Local: local, STag: to.stag, VA: to.va}); err != nil {
		return err
	}
	c.qp.Flush()
	_, err := c.wait(rdma.OpWrite)
	return err
}

// wait waits until the work request of kind op has completed.
func (c *channel) wait(op rdma.Op) (rdma.Completion, error) {
	for {
		n, err := c.qp.Wait(c.done[:])
		switch {
		case err != nil:
			return rdma.Completion{}, err
		case n > 0 && c.done[0].Op != op:
			return rdma.Completion{}, fmt.Errorf("unexpected completion: got kind %d, want %d", c.done[0].Op, op)
		case n > 0:
			return c.done[0], nil
		}
	}
}

// close waits until everything has been sent, and closes the channel.
func (c *channel) close() error {
	err := c.qp.Drain(time.Second)
	if err != nil {
		c.qp.Abort()
		return err
	}
	return c.qp.Close()
}
