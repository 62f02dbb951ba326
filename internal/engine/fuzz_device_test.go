package engine

import (
	"encoding/binary"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/rdma"
	"github.com/gosdp/gosdp/wire"
)

// memPair is a queue pair in memory: one end of two, or one whose peer is the
// test. It has no goroutine, and holds its owner to the rules: only whole
// messages, in step, with credit; a loan is given back once.
//
// mu guards everything; changed tells of completions, of the end, and of a poller
// that goes to sleep. With two ends, one's mu is never held in a call to the
// other.
type memPair struct {
	rdma.Base

	t    testing.TB
	peer *memPair // nil: the test is the peer
	note func(message []byte)

	mu      sync.Mutex
	changed sync.Cond
	queue   []rdma.Completion
	asleep  bool // a goroutine is in Wait, and has looked
	woken   bool
	err     error
	regions map[rdma.STag]memRegion
	next    rdma.STag
	newest  rdma.STag
	hold    bool // transfers complete when the test says so
	held    []memTransfer

	count, size, lent int    // receive buffers
	exact             bool   // only so many are posted, and used in the order of posting:
	posted            []int  // their sizes
	mostPosted        int    // how many were posted or lent at most
	said              uint32 // MSeq of the last message that was posted
	credit            uint32 // the last MSeq that the peer's credit allows
}

type memRegion struct {
	b      []byte
	access rdma.Access
}

// memTransfer is an RDMA Read or Write that is to complete.
type memTransfer struct {
	op       rdma.Op
	complete func() rdma.Completion
}

func newMemPair(t testing.TB, credit uint16) *memPair {
	p := &memPair{t: t, regions: make(map[rdma.STag]memRegion), credit: uint32(credit), next: 100}
	p.changed.L = &p.mu
	return p
}

// memLoan is a message that is lent.
type memLoan struct {
	p    *memPair
	back bool
}

func (l *memLoan) Release() {
	l.p.mu.Lock()
	defer l.p.mu.Unlock()
	if l.back {
		l.p.t.Error("a buffer is released twice")
	}
	l.back = true
	l.p.lent--
	l.p.post()
}

// post posts buffers until there are enough, if the device is exact.
func (p *memPair) post() {
	for p.exact && len(p.posted)+p.lent < p.count {
		p.posted = append(p.posted, p.size)
	}
	p.mostPosted = max(p.mostPosted, len(p.posted)+p.lent)
}

// deliver has a message come; what has no buffer for it ends the queue pair.
func (p *memPair) deliver(b []byte, invalidates rdma.STag) {
	if p.note != nil {
		p.note(b)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	defer p.changed.Broadcast()
	if p.err != nil {
		return
	}
	_, registered := p.regions[invalidates]
	size := p.size
	if p.exact {
		if size = 0; len(p.posted) > 0 {
			size, p.posted = p.posted[0], p.posted[1:]
		}
	}
	switch {
	case !p.exact && p.lent >= p.count, len(b) > size:
		p.err = &rdma.ProtocolError{Rule: "the test's", What: "no buffer"}
		return
	case invalidates != 0 && !registered:
		p.err = &rdma.ProtocolError{Rule: "the test's", What: "no such region"}
		return
	}
	delete(p.regions, invalidates)
	p.lent++
	p.queue = append(p.queue, rdma.Completion{
		Op: rdma.OpReceive, Buffer: rdma.Buffer{Bytes: b, Owner: &memLoan{p: p}}, Invalidated: invalidates,
	})
	if len(b) >= wire.HeaderLen {
		// What acknowledges more than has been said gives no credit. No session is so
		// long that numbers begin anew.
		if ack := binary.BigEndian.Uint32(b[12:]); ack <= p.said {
			p.credit = max(p.credit, ack+uint32(binary.BigEndian.Uint16(b[2:])))
		}
	}
}

func (p *memPair) PostSend(wrs []rdma.SendWR) (int, error) {
	for i := range wrs {
		b := append(append([]byte(nil), wrs[i].Header...), wrs[i].Payload...)
		p.mu.Lock()
		err := p.err
		if err == nil {
			p.check(b)
		}
		p.mu.Unlock()
		if err != nil {
			return i, err
		}
		if p.peer != nil {
			p.peer.deliver(b, wrs[i].Invalidate)
		}
	}
	return len(wrs), nil
}

// check checks a message that the owner sends. Called with mu held.
func (p *memPair) check(b []byte) {
	var m wire.Message
	if err := m.Parse(b); err != nil {
		p.t.Errorf("it sends what is malformed: %v", err)
	}
	if m.MSeq != p.said+1 {
		p.t.Errorf("it sends MSeq %d after %d", m.MSeq, p.said)
	}
	if m.MSeq > p.credit {
		p.t.Errorf("it sends MSeq %d, and has credit up to %d", m.MSeq, p.credit)
	}
	p.said = m.MSeq
}

// transfer completes an RDMA Read or Write, now or when the test says so.
func (p *memPair) transfer(op rdma.Op, id uint64, move func()) error {
	complete := func() rdma.Completion {
		move()
		return rdma.Completion{Op: op, ID: id}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.err != nil:
		return p.err
	case p.hold && len(p.held) >= 4:
		return rdma.ErrNoRoom
	case p.hold:
		p.held = append(p.held, memTransfer{op, complete})
	default:
		p.queue = append(p.queue, complete())
	}
	p.changed.Broadcast()
	return nil
}

func (p *memPair) PostRead(wr rdma.ReadWR) error {
	from := p.reach(wr.STag, wr.VA, len(wr.Local))
	return p.transfer(rdma.OpRead, wr.ID, func() {
		for i := range wr.Local {
			wr.Local[i] = memFetched
		}
		copy(wr.Local, from)
	})
}

func (p *memPair) PostWrite(wr rdma.WriteWR) error {
	to := p.reach(wr.STag, wr.VA, len(wr.Local))
	return p.transfer(rdma.OpWrite, wr.ID, func() { copy(to, wr.Local) })
}

// reach returns the other end's memory, if there is another end.
func (p *memPair) reach(s rdma.STag, va uint64, n int) []byte {
	if p.peer == nil {
		return nil
	}
	p.peer.mu.Lock()
	defer p.peer.mu.Unlock()
	return p.peer.regions[s].b[va:][:n]
}

// memFetched is what RDMA Reads from the test bring.
const memFetched = 'r'

// release has the oldest transfer that was held complete.
func (p *memPair) release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.held) > 0 && p.err == nil {
		p.queue = append(p.queue, p.held[0].complete())
		p.held = p.held[1:]
		p.changed.Broadcast()
	}
}

// backFrom checks that a call of the program's that has returned has left nothing
// given away: no region with that access, no transfer under way.
func (p *memPair) backFrom(access rdma.Access, op rdma.Op) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.regions {
		if r.access == access {
			p.t.Error("the peer may still reach the memory of a call that has returned")
		}
	}
	for _, h := range p.held {
		if h.op == op {
			p.t.Error("the device still uses the memory of a call that has returned")
		}
	}
}

// fill writes into the newest region that the peer may write.
func (p *memPair) fill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r := p.regions[p.newest]; r.access&rdma.RemoteWrite != 0 {
		for i := range r.b {
			r.b[i] = 'w'
		}
	}
}

func (p *memPair) Poll(wcs []rdma.Completion) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.poll(wcs)
}

func (p *memPair) poll(wcs []rdma.Completion) (int, error) {
	n := copy(wcs, p.queue)
	p.queue = append(p.queue[:0], p.queue[n:]...)
	if n == 0 {
		return 0, p.err
	}
	return n, nil
}

func (p *memPair) Wait(wcs []rdma.Completion) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.queue) == 0 && !p.woken && p.err == nil {
		p.asleep = true
		p.changed.Broadcast()
		p.changed.Wait()
		p.asleep = false
	}
	p.woken = false
	return p.poll(wcs)
}

func (p *memPair) Wake() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.woken = true
	p.changed.Broadcast()
}

func (p *memPair) Register(b []byte, access rdma.Access) (rdma.Region, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return rdma.Region{}, p.err
	}
	p.next++
	p.newest = p.next
	p.regions[p.next] = memRegion{b, access}
	return rdma.Region{STag: p.next}, nil
}

func (p *memPair) Invalidate(s rdma.STag) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.regions, s)
}

func (p *memPair) ProvideReceive(count, size int) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.count, p.size = count, size
	p.post()
	old := 0
	for i, posted := range p.posted {
		if posted != size {
			old = i + 1
		}
	}
	for _, c := range p.queue {
		if old > 0 && c.Op == rdma.OpReceive {
			old++
		}
	}
	return old
}

func (p *memPair) Limits() rdma.Limits {
	l := rdma.Limits{MaxMessage: 128 << 10, SendBatch: 16, IRD: maxReads, ORD: maxReads, Threshold: 64 << 10, Invalidate: true, Elastic: !p.exact}
	if p.exact {
		l.Buffers = 2048
	}
	return l
}

// end ends the queue pair, because the peer has.
func (p *memPair) end(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err == nil {
		p.err = err
	}
	p.changed.Broadcast()
}

func (p *memPair) Close() error {
	p.mu.Lock()
	p.queue, p.held = nil, nil // no completion of it is delivered
	clear(p.regions)
	p.mu.Unlock()
	p.end(net.ErrClosed)
	if p.peer != nil {
		p.peer.end(net.ErrClosed)
	}
	return nil
}

func (p *memPair) Abort() error              { return p.Close() }
func (p *memPair) Busy() bool                { return false }
func (p *memPair) WaitRoom() error           { return nil }
func (p *memPair) WakeRoom()                 {}
func (p *memPair) Flush()                    {}
func (p *memPair) Drain(time.Duration) error { return nil }

// idle reports that the owner has taken in all there is.
func (p *memPair) idle() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err != nil || len(p.queue) == 0 && p.asleep
}

// memConn is a connection over a queue pair in memory, whose peer has so many
// private buffers.
func memConn(t testing.TB, qp rdma.QueuePair, dialled bool, threshold int, bufs uint16) *Conn {
	t.Helper()
	hello := OurHello(0)
	peer := hello
	peer.Bufs = bufs
	qp.ProvideReceive(RecvBuffers, recvSize)
	c, err := New(memSocket{}, qp, Setup{
		Device: "mem", Dialled: dialled, Decided: true, Tuning: Tuning{Threshold: threshold}, Local: hello, Peer: peer,
	})
	require.NoError(t, err)
	return engineOf(t, c)
}

// memSocket is the TCP connection that they began with.
type memSocket struct{}

func (memSocket) Read([]byte) (int, error)         { return 0, net.ErrClosed }
func (memSocket) Write([]byte) (int, error)        { return 0, net.ErrClosed }
func (memSocket) Close() error                     { return nil }
func (memSocket) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (memSocket) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (memSocket) SetDeadline(time.Time) error      { return nil }
func (memSocket) SetReadDeadline(time.Time) error  { return nil }
func (memSocket) SetWriteDeadline(time.Time) error { return nil }
