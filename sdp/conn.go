package sdp

import (
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gosdp/gosdp/bcopy"
	"github.com/gosdp/gosdp/credits"
	"github.com/gosdp/gosdp/rdma"
	"github.com/gosdp/gosdp/wire"
	"github.com/gosdp/gosdp/zcopy"
)

// Conn is a stream connection over RDMA. It is a [net.Conn], and all its methods
// are safe for concurrent use.
//
// # Who owns what, and who waits for whom
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
// It may be a Read, a Write that lacks credit, the flusher, a Close, or the
// attendant, a goroutine that exists while nobody else polls and nobody has for
// a while, or while a Write waits for the device. Everyone else who waits for
// news waits on the condition news, which the poller tells after each batch of
// completions and when it leaves; who then finds no poller becomes it. A Read
// never waits behind the attendant, but sends it away.
type Conn struct {
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

	acct    credits.Account
	source  bcopy.Source
	sink    bcopy.Sink
	zsource *zcopy.Source // these three are nil while zero copy has no part in
	zsink   *zcopy.Sink   // this connection; see direct
	moves   *moves
	target  int   // private buffers that we want to have posted
	held    int32 // private buffers that the device has posted and the peer is not told of
	ahead   int32 // private buffers beyond recvBuffers; see readAhead

	claims   int32  // calls that want to poll instead of the attendant
	waiters  int32  // goroutines waiting for news
	behind   int32  // completions of the batch that are not handled yet
	linger   int32  // SetLinger, in seconds
	window   int    // bytes that the private buffers shall hold together
	polled   uint32 // grows each time that the device has been asked
	activity uint32 // grows with each batch of completions and each Write
	watch    watch  // the janitor's
	traffic  tally
	declined reasons // device: why it was not used

	adverts     uint16 // of the peer's that may be outstanding
	fin         finState
	starved     bool // someone waits for the peer to have buffers
	discarded   bool // payload came that nobody will read
	update      bool // an empty Data message is due, whatever the credit
	abortDue    bool // an AbortConn is due
	polling     bool // someone is the poller
	parked      bool // the poller is in Wait, or about to be
	attending   bool // the attendant runs; it is the poller or waits to be
	inRoom      bool // someone is in WaitRoom
	readClosed  bool // CloseRead
	writeClosed bool // CloseWrite
	closed      bool // Close
	giveUp      bool // Close's time is over
	draining    bool // Close drains: there may be an attendant
	failed      bool // a violation, or an abort, has ended the connection

	read, write *deadline     // nil: it was never set
	closeUntil  time.Duration // Close's time, on the clock
	closeTimer  *time.Timer   // of it; nil: Close has waited for nothing
	recvErr     error         // nothing more will come: io.EOF or why
	sendErr     error         // nothing more can go

	small   coalescer
	flusher func() // flushSmall, bound once so that starting it allocates nothing; nil: it never was

	workers sync.WaitGroup // the attendant and the flusher
	under   *under         // who watches tcp; nil: nobody has

	few  [2]rdma.Completion // with which the poller waits,
	many *completions       // if not with these, because more have come lately
}

// finState is how far our DisConn is.
type finState uint8

const (
	finOpen  finState = iota // the program may still write
	finDue                   // all data before it is through
	finGoing                 // it is being posted
	finSent
)

var _ net.Conn = (*Conn)(nil)

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
	// threshold is what the program or the environment says; 0: the device's own.
	threshold int
}

// newConn makes the connection: qp is connected, and has the receive buffers that
// s.local announces. At the end that dialled it sends the client's decision, if
// that is to be sent yet. With an error it has aborted qp.
func newConn(tcp net.Conn, qp rdma.QueuePair, s setup) (*Conn, error) {
	c := &Conn{
		tcp:      tcp,
		qp:       qp,
		device:   s.device,
		declined: s.declined,
		batch:    int32(min(qp.Limits().SendBatch, maxBatch)),
		acct:     credits.New(s.peer.Bufs, s.local.Bufs),
		source:   bcopy.NewSource(int(min(s.peer.LocalRcvSz, bcopy.MaxBuffer)), s.dialled),
		sink:     bcopy.NewSink(int(s.local.LocalRcvSz)),
		target:   int(s.local.Bufs),
	}
	c.linger, c.window = -1, recvWindow
	c.initDirect(&s)
	switch {
	case s.decided:
	case s.first != nil:
		if err := c.acct.Received(s.first.MSeq, s.first.MSeqAck, s.first.Bufs); err != nil {
			qp.Abort()
			return nil, err
		}
		c.acct.Post(1)
	default:
		c.update = true
		c.due.Store(true)
		c.control()
		if c.sendErr != nil {
			qp.Abort()
			return nil, c.sendErr
		}
	}
	c.count()
	c.mu.Lock()
	c.watchLocked()
	c.mu.Unlock()
	c.watchUnder()
	return c, nil
}

// Device names the RDMA device that carries the connection: "shm", "verbs", "iwarp".
func (c *Conn) Device() string { return c.device }

// LocalAddr returns the local address, a [*net.TCPAddr] or [*net.UnixAddr].
func (c *Conn) LocalAddr() net.Addr { return c.tcp.LocalAddr() }

// RemoteAddr returns the peer's address, of the same type.
func (c *Conn) RemoteAddr() net.Addr { return c.tcp.RemoteAddr() }

// SetDeadline sets the deadlines of Read and Write; see [net.Conn].
func (c *Conn) SetDeadline(t time.Time) error {
	if err := c.SetReadDeadline(t); err != nil {
		return err
	}
	return c.SetWriteDeadline(t)
}

// SetReadDeadline sets when Read calls, those in progress included, fail with
// an error that wraps os.ErrDeadlineExceeded; see [net.Conn].
func (c *Conn) SetReadDeadline(t time.Time) error { return c.setDeadline(&c.read, t) }

// SetWriteDeadline sets when Write calls, those in progress included, fail with
// an error that wraps os.ErrDeadlineExceeded; see [net.Conn]. Bytes of a message
// that has been started are sent, and counted, all the same.
func (c *Conn) SetWriteDeadline(t time.Time) error { return c.setDeadline(&c.write, t) }
