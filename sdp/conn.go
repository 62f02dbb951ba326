package sdp

import (
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gosdp/gosdp/internal/bubble"
	"github.com/gosdp/gosdp/internal/localpeer"
	"github.com/gosdp/gosdp/internal/session"
	"github.com/gosdp/gosdp/rdma"
	"github.com/gosdp/gosdp/wire"
)

// conn is what a [Conn] stands for. Its methods are documented there.
//
// The locks, outermost first; each may be taken without those before it:
//
//   - writeMu and readMu let one Write and one Read in at a time, for as long as
//     the call takes, so that the bytes of two calls do not mix.
//   - sendMu is the order of messages: it is held from stamping a message with
//     its MSeq until it is in the device, and never while waiting. The protocol's
//     own messages are sent by whoever has made them due, if sendMu is free;
//     else by its holder, who looks again (due) after letting go.
//   - mu guards the protocol's state, below it in the struct, and is never held
//     across a call into the device that could block.
//
// One goroutine at a time polls the queue pair: polling says that there is one.
// It may be a Read, a Write that lacks credit, a Close, or the attendant, a goroutine that exists while nobody else polls and nobody has for
// a while, or while a Write waits for the device. Everyone else who waits for
// news waits on the condition news, which the poller tells after each batch of
// completions and when it leaves; who then finds no poller becomes it. A Read
// never waits behind the attendant, but sends it away.
type conn struct {
	tcp    net.Conn // the connection that everything began with
	qp     rdma.QueuePair
	device string

	writeMu sync.Mutex
	readMu  sync.Mutex
	sendMu  sync.Mutex
	due     atomic.Bool // messages of the protocol's own may be due

	mu    sync.Mutex
	batch int32      // messages worth posting at once
	news  *sync.Cond // nil while nobody waits for it

	session session.Session
	promise promise
	moves   *moves // nil while zero copy has no part in this connection

	claims   int32  // calls that want to poll instead of the attendant
	waiters  int32  // goroutines waiting for news
	behind   int32  // completions of the batch that are not handled yet
	linger   int32  // SetLinger, in seconds
	polled   uint32 // grows each time that the device has been asked
	activity uint32 // grows with each batch of completions and each Write
	watch    watch  // the janitor's
	traffic  tally
	declined reasons // device: why it was not used

	starved     bool // someone waits for the peer to have buffers
	discarded   bool // payload came that nobody will read
	polling     bool // someone is the poller
	parked      bool // the poller is in Wait, or about to be
	attending   bool // the attendant runs; it is the poller or waits to be
	inRoom      bool // someone is in WaitRoom
	readClosed  bool // CloseRead
	writeClosed bool // CloseWrite
	closed      bool // Close
	watched     bool // the janitor looks after the connection when it must
	giveUp      bool // the closed connection is to be reset
	draining    bool // Close drains: there may be an attendant
	late        bool // drain's time is over
	stepping    bool // someone is in closeStep or conclude
	lingers     bool // the closed connection is left to the background
	failed      bool // a violation, or an abort, has ended the connection

	read, write *deadline // nil: it was never set
	recvErr     error     // nothing more will come: io.EOF or why
	sendErr     error     // nothing more can go

	appender    rdma.Appender     // qp, if its messages can grow; nil: they cannot
	reporter    rdma.ReadReporter // qp, if it tells the peer what was read; nil: it does not
	smallWrites int32             // since the last Read or longer Write, at most appendAfter
	appends     atomic.Bool       // small Writes may append to the last message; see mayGrow

	workers sync.WaitGroup // the attendant
	under   *under         // who watches tcp; nil: nobody has

	few  [2]rdma.Completion // with which the poller waits,
	many *completions       // if not with these, because more have come lately
}

// setup is what two ends have agreed on.
type setup struct {
	device      string
	dialled     bool    // by this end
	decided     bool    // the client's decision has gone over the TCP connection: StepUp
	declined    reasons // device: why it was not used
	local, peer wire.Hello
	// first is the header of the client's decision, at the end that accepted, if
	// it is a message of qp's. Otherwise the end that dialled has yet to send it.
	first *wire.Header
	tuning
}

// newConn makes the connection: qp is connected, and has the receive buffers that
// s.local announces. At the end that dialled it sends the client's decision, if
// that is to be sent yet. With an error it has aborted qp.
func newConn(tcp net.Conn, qp rdma.QueuePair, s setup) (*Conn, error) {
	c := &conn{
		tcp:      tcp,
		qp:       qp,
		device:   s.device,
		declined: s.declined,
		batch:    int32(min(qp.Limits().SendBatch, session.MaxBatch)),
	}
	c.linger = -1
	c.promise = promise{session: &c.session, held: recvBuffers - int32(s.local.Bufs), window: recvWindow}
	if s.window > 0 {
		c.promise.window = int32(min(s.window, 1<<30))
	}
	c.appender, _ = qp.(rdma.Appender)
	c.session = session.New(session.Config{
		Dialled:     s.dialled,
		Local:       s.local,
		Peer:        s.peer,
		Grows:       c.appender != nil,
		Invalidates: qp.Limits().Invalidate,
	})
	c.reporter, _ = qp.(rdma.ReadReporter)
	if p, ok := qp.(rdma.BusyPoller); ok && s.busyPoll != 0 {
		p.SetBusyPoll(s.busyPoll)
	}
	if c.session.Sink.Size() < recvSize {
		c.provide() // the device was made ready for larger ones
	}
	c.initDirect(&s)
	switch {
	case s.decided:
	case s.first != nil:
		if err := c.session.Account.Received(s.first.MSeq, s.first.MSeqAck, s.first.Bufs); err != nil {
			qp.Abort()
			return nil, err
		}
		c.session.Account.Post(1)
	default:
		c.session.Update()
		c.due.Store(true)
		c.control()
		if c.sendErr != nil {
			qp.Abort()
			return nil, c.sendErr
		}
	}
	c.promise.account()
	c.count(s.dialled, s.logger)
	if !bubble.Inside() { // there the calls in progress alone work for a connection, as with TCP
		c.mu.Lock()
		c.watched = true
		c.watchLocked()
		c.mu.Unlock()
	}
	c.watchUnder()
	return publish(c), nil
}

func (c *conn) Device() string { return c.device }

func (c *conn) LocalAddr() net.Addr { return programs(c.tcp.LocalAddr()) }

func (c *conn) RemoteAddr() net.Addr { return programs(c.tcp.RemoteAddr()) }

// programs returns the address as the program would see it without SDP: a dialler's Unix
// socket has no name.
func programs(a net.Addr) net.Addr {
	if u, ok := a.(*net.UnixAddr); ok && localpeer.IsUnixDialler(u) {
		return &net.UnixAddr{Net: u.Net, Name: "@"}
	}
	return a
}

func (c *conn) SetDeadline(t time.Time) error {
	if err := c.SetReadDeadline(t); err != nil {
		return err
	}
	return c.SetWriteDeadline(t)
}

func (c *conn) SetReadDeadline(t time.Time) error { return c.setDeadline(&c.read, t) }

func (c *conn) SetWriteDeadline(t time.Time) error { return c.setDeadline(&c.write, t) }
