package handshaketest

import (
	"context"
	"errors"
	"sync"

	"github.com/gosdp/gosdp/rdma"
)

// Offerer is a device whose channels the client offers, and the tests make.
type Offerer struct {
	Kept      rdma.QueuePair // of IdleTicket; nil: it is not kept
	Channel   rdma.QueuePair // of NewTicket,
	Decisions chan error     // when the client has decided to take it, or not

	mu  sync.Mutex
	met *meeting
}

// The tickets that the device knows.
var (
	IdleTicket = rdma.Ticket{4, 5, 6}
	NewTicket  = rdma.Ticket{7, 8, 9}
)

func (d *Offerer) Name() string            { return "shm" }
func (d *Offerer) Probe() error            { return nil }
func (d *Offerer) Reaches(rdma.Peer) error { return nil }
func (d *Offerer) Listen(rdma.ChannelConfig) (rdma.ChannelListener, error) {
	return offeredPlace{d}, nil
}
func (d *Offerer) Idle(string, rdma.ChannelConfig) rdma.Offer { return nil }
func (d *Offerer) Offer(string, rdma.ChannelConfig) (rdma.Offer, error) {
	return nil, errors.New("nobody dials here")
}

type offeredPlace struct{ d *Offerer }

func (p offeredPlace) Resume(_ rdma.Peer, t rdma.Ticket, _ int) (rdma.QueuePair, error) {
	if p.d.Kept == nil || t != IdleTicket {
		return nil, errors.New("there is none")
	}
	return p.d.Kept, nil
}

func (p offeredPlace) Meet(_ rdma.Peer, t rdma.Ticket, _ int) (rdma.PendingOffer, error) {
	p.d.mu.Lock()
	defer p.d.mu.Unlock()
	if t != NewTicket {
		return nil, errors.New("nobody is there")
	}
	p.d.met = &meeting{d: p.d}
	return p.d.met, nil
}

func (offeredPlace) Close() error { return nil }

// meeting is the end of a channel that the listener has opened.
type meeting struct {
	d         *Offerer
	withdrawn bool
}

func (m *meeting) Decided() bool { return len(m.d.Decisions) > 0 }

func (m *meeting) Take(ctx context.Context) (rdma.QueuePair, error) {
	select {
	case err := <-m.d.Decisions:
		return m.d.Channel, err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (m *meeting) Withdraw() {
	m.d.mu.Lock()
	defer m.d.mu.Unlock()
	m.withdrawn = true
}

// SHM is the device, registered as shm for the whole test program.
var SHM = func() *Offerer {
	d := new(Offerer)
	rdma.RegisterDevice(d)
	return d
}()

// Reset forgets the channels.
func (d *Offerer) Reset() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.Kept, d.Channel, d.met = nil, nil, nil
	d.Decisions = make(chan error, 1)
}

// Met reports whether the server opened its end of a new channel, and Withdrawn whether it
// withdrew it.
func (d *Offerer) Met() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.met != nil
}

// Withdrawn is described at Met.
func (d *Offerer) Withdrawn() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.met != nil && d.met.withdrawn
}
