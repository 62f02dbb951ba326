//go:build linux && cgo

package verbs

// #include "shim.h"
import "C"

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"syscall"

	"github.com/gosdp/gosdp/internal/handover"
	"github.com/gosdp/gosdp/rdma"
)

// acceptor accepts channels: it has one rdma_cm listener for each local address to which peers
// have connected over TCP, so that the listener is on the device that has that address.
//
// mu guards invited, joining and closed. The event loop takes it, so no call to the kernel is made
// while it is held.
type acceptor struct {
	cfg       rdma.ChannelConfig
	e         *eventLoop
	listeners listeners
	workers   sync.WaitGroup
	ending    context.Context
	end       context.CancelFunc

	mu      sync.Mutex
	invited map[[16]byte]*invitation
	joining int // peers that are being admitted
	closed  bool
}

const (
	backlog = 512
	// maxJoining bounds the peers that are being admitted at a time; others are rejected.
	maxJoining = 256
)

func listen(cfg rdma.ChannelConfig) (*acceptor, error) {
	e, err := acquire()
	if err != nil {
		return nil, err
	}
	p := &acceptor{cfg: cfg, e: e, invited: make(map[[16]byte]*invitation)}
	p.listeners.open, p.listeners.device = p.listen, e.deviceAt
	p.ending, p.end = context.WithCancel(context.Background())
	return p, nil
}

// invitation is for one peer.
type invitation struct {
	*handover.Slot
	acceptor *acceptor
	token    [16]byte
	port     uint16
	answer   func([]byte) ([]byte, int, error)

	// over is done when the invitation has been withdrawn, or the acceptor closed.
	over context.Context
	end  context.CancelFunc
}

// Invite expects one peer.
func (p *acceptor) Invite(peer rdma.Peer, answer func([]byte) ([]byte, int, error)) (rdma.Invitation, error) {
	port, err := p.listeners.port(peer.Local.Addr().Unmap())
	if err != nil {
		return nil, err
	}
	i := &invitation{acceptor: p, answer: answer, port: port, Slot: handover.New()}
	i.over, i.end = context.WithCancel(p.ending)
	rand.Read(i.token[:])
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, net.ErrClosed
	}
	p.invited[i.token] = i
	return i, nil
}

// listen listens on an address; see listeners.
func (p *acceptor) listen(at netip.Addr, lost func(error)) (o opened, err error) {
	err = withFreePort(func() error {
		id, err := p.e.newListener(p.request, lost)
		if err != nil {
			return err
		}
		if err = id.listen(at); err != nil {
			id.destroy()
			return err
		}
		o = opened{port: uint16(C.v_port(id.c)), device: id.c.verbs, stop: id.destroy}
		return nil
	})
	return o, err
}

// listen binds an id to an address of a device and listens there.
func (id *cmID) listen(at netip.Addr) error {
	if err := id.bindDevice(at); err != nil {
		return err
	}
	if errno := C.v_listen(id.c, backlog); errno != 0 {
		return fmt.Errorf("verbs: rdma_cm: listen on %v: %w", at, syscall.Errno(errno))
	}
	return nil
}

// bindDevice binds an id to an address. It fails if no device has that.
func (id *cmID) bindDevice(at netip.Addr) error {
	if err := id.bind(netip.AddrPortFrom(at, 0)); err != nil {
		return err
	}
	if id.c.verbs == nil {
		return fmt.Errorf("%v is not the address of an RDMA device", at)
	}
	return nil
}

// deviceAt returns the device that has an address at this moment.
func (e *eventLoop) deviceAt(at netip.Addr) (any, error) {
	id, err := e.newID()
	if err != nil {
		return nil, err
	}
	defer id.destroy()
	if err := id.bindDevice(at); err != nil {
		return nil, err
	}
	return id.c.verbs, nil
}

// Address tells the peer where to connect.
func (i *invitation) Address() rdma.Address { return rdma.Address{Token: i.token, Port: i.port} }

// Withdraw ends the invitation.
func (i *invitation) Withdraw() {
	i.acceptor.forget(i.token)
	i.end()
	i.Slot.Withdraw()
}

// forget removes an invitation.
func (p *acceptor) forget(token [16]byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.invited, token)
}

// request starts to admit a peer. It runs on the event loop.
func (p *acceptor) request(ev cmEvent) {
	if err := p.hear(ev); err != nil {
		ev.id.rejectLater(err)
	}
}

// hear starts a goroutine for a peer, or says why not. A peer without a good token gets none, and
// takes no place of one that was invited.
func (p *acceptor) hear(ev cmEvent) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return net.ErrClosed
	}
	var token [16]byte
	if copy(token[:], ev.private) < len(token) {
		return errors.New("missing connection token")
	}
	i := p.invited[token]
	switch {
	case i == nil:
		return errors.New("invalid or expired connection token")
	case p.joining >= maxJoining:
		return errors.New("too many connections being established")
	}
	delete(p.invited, token) // it is good for one peer
	p.joining++
	p.workers.Go(func() {
		p.admit(ev, i)
		p.mu.Lock()
		p.joining--
		p.mu.Unlock()
	})
	return nil
}

// rejectLater makes the dispatcher reject the peer. If too many wait for that, the caller's
// goroutine does it. It then reads no more requests meanwhile, and the kernel refuses those beyond
// backlog.
func (id *cmID) rejectLater(why error) {
	if !id.e.work.offer(&id.later, func() { id.reject(why) }) {
		id.reject(why)
	}
}

// reject rejects the peer, and ends the id.
func (id *cmID) reject(why error) {
	text := []byte(why.Error())
	text = text[:min(len(text), mostReason)]
	C.v_reject(id.c, bytesPointer(text), C.int(len(text)))
	id.destroy()
}

// mostReason is how long the text of a rejection may be on every transport.
const mostReason = 148

// errNotAdmitted is what a peer is told that this end does not admit. The reason is for the log: it may
// say how much memory this process has, and the token proves nothing about the peer.
var errNotAdmitted = errors.New("server cannot open the channel")

// admit answers a peer whose token is good.
func (p *acceptor) admit(ev cmEvent, i *invitation) {
	q, reply, err := p.prepare(ev, i.answer)
	if err != nil {
		i.Deliver(nil, err) // first, so that the handshake has the reason when the peer goes on
		ev.id.reject(errNotAdmitted)
		return
	}
	if err = q.accept(i.over, reply); err != nil {
		q.Abort()
	}
	i.Deliver(q, err)
}

// prepare makes the queue pair for a peer, and the reply.
func (p *acceptor) prepare(ev cmEvent, answer func([]byte) ([]byte, int, error)) (*QueuePair, []byte, error) {
	reply, ord, err := answer(ev.private[16:])
	if err != nil {
		return nil, nil, err
	}
	q, err := newQueuePair(ev.id, p.cfg)
	if err != nil {
		return nil, nil, err
	}
	q.ord = min(ord, q.mostORD)
	if ev.ord > 0 {
		q.ord = min(q.ord, ev.ord)
	}
	return q, reply, nil
}

// accept sends the reply, and on iWARP waits until the channel is open or ctx is done. It has no timeout
// of its own. The peer may believe that the channel is open as soon as it has the reply, and this process
// may have been stopped since, so only the handshake, which hears what the peer has decided, can give up.
//
// Over InfiniBand and RoCE the queue pair is ready now. The handshake does not need the peer's last message,
// RTU, because the peer tells its decision later, over TCP. RTU is a datagram, and if it is lost, the
// kernel asks for another one only after seconds.
func (q *QueuePair) accept(ctx context.Context, reply []byte) error {
	if errno := C.v_accept(q.id.c, bytesPointer(reply), C.int(len(reply)), C.int(q.ird), C.int(q.ord)); errno != 0 {
		return fmt.Errorf("verbs: rdma_cm: accept: %w", syscall.Errno(errno))
	}
	if !q.rnic {
		return nil
	}
	if _, err := q.id.await(ctx, C.V_CM_ESTABLISHED); err != nil {
		return err
	}
	return q.exchangeRTR(ctx)
}

// Close ends the acceptor and every invitation.
func (p *acceptor) Close() error {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil
	}
	p.closed = true
	left := p.invited
	p.invited = nil
	p.mu.Unlock()
	for _, i := range left {
		i.Deliver(nil, net.ErrClosed)
	}
	p.end()
	p.listeners.close()
	p.workers.Wait()
	p.e.release()
	return nil
}
