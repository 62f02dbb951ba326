package engine

import (
	"log/slog"
	"net"
	"sync/atomic"
	"time"

	"github.com/gosdp/gosdp/internal/bubble"
	"github.com/gosdp/gosdp/internal/dump"
	"github.com/gosdp/gosdp/internal/handshake"
	"github.com/gosdp/gosdp/internal/lockorder"
	"github.com/gosdp/gosdp/internal/netname"
	"github.com/gosdp/gosdp/internal/observe"
	"github.com/gosdp/gosdp/internal/session"
	"github.com/gosdp/gosdp/rdma"
	"github.com/gosdp/gosdp/wire"
)

// Conn is a connection of SDP over RDMA. It implements [net.Conn]. The package comment has its locks.
type Conn struct {
	tcp    net.Conn // the connection that the handshake ran on
	qp     rdma.QueuePair
	dump   atomic.Pointer[dump.Stream] // beside qp, because each Read and Write loads both
	device string

	writeMu lockorder.Mutex[lockorder.ConnWrite]
	readMu  lockorder.Mutex[lockorder.ConnRead]
	out     sender

	// mu guards the fields from here to workers, except recorded, network and told.
	mu       lockorder.Mutex[lockorder.ConnState]
	session  session.Session
	promise  promise
	poll     poller
	idle     idleState
	closer   closer
	zcopy    *zeroCopy // nil: zero copy was not used
	traffic  tally
	declined handshake.Reasons // why devices that were preferred are not used

	phase  phase
	health health
	lent   lent
	lost   bool  // a Write has found that the peer has closed, or an AbortConn has arrived
	ackDue bool  // what has arrived should be acknowledged at once; see ackReleasing
	exact  bool  // the device posts only the private buffers that there shall be; see promise
	decoy  decoy // of RawConn.Read; none while one is in progress

	recorded observe.Record

	network netname.ID  // for errors; it does not change, and is here because it takes no room
	told    atomic.Bool // a call has returned the reset

	read, write *deadline // nil: it was never set
	recvErr     error     // nothing more will arrive: io.EOF, or why
	sendErr     error     // nothing more can be sent

	workers int32 // goroutines: the background poller, and an Abort

	tcpMonitor *tcpMonitor // set before the program has the connection; nil: none is needed
}

// Setup is the result of the handshake, and what the connection is to be like.
type Setup struct {
	Network     netname.ID
	Device      string
	Dialled     bool              // by this end
	Decided     bool              // the client's decision was sent over the TCP connection: StepUp
	Declined    handshake.Reasons // why devices that were preferred are not used
	Local, Peer wire.Hello
	// First is the header of the client's decision, at the end that accepted, if the
	// decision is a message of the queue pair. Otherwise the end that dialled has yet to send it.
	First *wire.Header
	Tuning
}

// Tuning is what the program or the operator says of how a connection works. Zero values
// leave it to the device.
type Tuning struct {
	Threshold int           // ZCopyThreshold
	BusyPoll  time.Duration // BusyPoll
	Window    int           // ReadBuffer
	Logger    *slog.Logger  // Logger
}

// New returns the connection over qp, which is connected and has the receive buffers
// that s.Local announces. The end that dialled sends the client's decision unless it was
// sent before. If New returns an error, it has aborted qp.
func New(tcp net.Conn, qp rdma.QueuePair, s Setup) (*Conn, error) {
	c := &Conn{tcp: tcp, qp: qp, network: s.Network, device: s.Device, declined: s.Declined}
	c.out.conn, c.poll.conn = c, c
	c.out.batch = uint8(min(qp.Limits().SendBatch, session.MaxBatch))
	c.closer = closer{conn: c, linger: -1}
	c.promise = promise{conn: c, held: RecvBuffers - int32(s.Local.Bufs), window: recvWindow}
	if !qp.Limits().Elastic {
		c.exact, c.promise.window = true, exactWindow
	}
	if s.Window > 0 {
		c.promise.window = int32(min(s.Window, mostWindow))
	}
	c.session = session.New(session.Config{
		Dialled:     s.Dialled,
		Local:       s.Local,
		Peer:        s.Peer,
		Invalidates: qp.Limits().Invalidate,
	})
	if s.BusyPoll != 0 {
		qp.SetBusyPoll(s.BusyPoll)
	}
	if c.session.BufferSize() < recvSize {
		c.promise.provide() // the device was prepared for larger ones
	}
	c.startZeroCopy(&s)
	switch {
	case s.Decided:
	case s.First != nil:
		if err := c.session.Begin(s.First); err != nil {
			qp.Abort()
			return nil, err
		}
	default:
		c.session.Update()
		c.out.due.Store(true)
		c.out.sendDue()
		if c.sendErr != nil {
			qp.Abort()
			return nil, c.sendErr
		}
	}
	c.promise.account()
	c.poll.cond.Make()
	observe.Opened(c, s.Dialled, s.Logger)
	if !bubble.Inside() { // in a bubble only calls in progress work for a connection
		c.mu.Lock()
		c.idle.enabled = true
		idleMonitor.watchLocked(c)
		c.mu.Unlock()
	}
	c.monitorTCP()
	return c, nil
}

// startZeroCopy prepares for zero copy if both ends take part.
func (c *Conn) startZeroCopy(s *Setup) {
	limits := c.qp.Limits()
	threshold := s.Threshold
	if threshold == 0 {
		threshold = limits.Threshold
	}
	most := min(limits.ORD, int(s.Local.ORD))
	if threshold <= 0 || most == 0 || bubble.Inside() {
		return // in a bubble nothing is advertised; see offerReleasing
	}
	c.session.StartDirect(session.DirectConfig{
		Threshold:   threshold,
		PeerAdverts: int(s.Peer.MaxAdverts),
		Worth:       max(threshold, leastFetch),
	})
	c.zcopy = newZeroCopy(c, most)
}

// LocalAddr returns the TCP connection's local address.
func (c *Conn) LocalAddr() net.Addr { return c.tcp.LocalAddr() }

// RemoteAddr returns the TCP connection's remote address.
func (c *Conn) RemoteAddr() net.Addr { return c.tcp.RemoteAddr() }
