package sdp

import (
	"log/slog"
	"sync"
	"time"

	"github.com/gosdp/gosdp/internal/budget"
)

// Counts are messages and the bytes of the stream that they carried.
type Counts struct {
	Messages uint64
	Bytes    uint64
}

func (c *Counts) add(o Counts) {
	c.Messages += o.Messages
	c.Bytes += o.Bytes
}

// Traffic is what connections have carried. The counters only grow.
//
// The bytes of the stream are the sum of BcopySent.Bytes and ZCopySent in one direction, and
// of BcopyReceived.Bytes and ZCopyReceived in the other.
type Traffic struct {
	BcopySent     Counts // what was copied into messages. Few bytes a message: the program's Writes are small
	BcopyReceived Counts // what came in messages
	// ControlSent and ControlReceived are messages of the protocol's own: credit, and what
	// zero copy needs. On a busy connection they are far fewer than those with bytes.
	ControlSent, ControlReceived uint64
	// CreditStalls is how often a Write waited for the peer to have room. If it grows, the
	// peer's program reads more slowly than this one writes.
	CreditStalls uint64

	ZCopySent     uint64 // bytes of Writes that went without a copy
	ZCopyReceived uint64 // bytes of Reads that came without a copy
	Advertised    uint64 // Writes and Reads, or parts of them, that were offered for that
	// Cancels is how often such an offer was withdrawn, because the peer did not use it in
	// time or the call ended. If it is not much smaller than Advertised, zero copy does not
	// suit the traffic: raise Config.ZCopyThreshold.
	Cancels     uint64
	SendSmSent  uint64 // the peer's offers that this end wanted as copied messages, because its Reads were small
	SendSmCame  uint64 // this end's offers that the peer wanted so
	ModeChanges uint64 // changes between the protocol's ways of zero copy, in both directions
}

// tally is what of it a connection counts itself.
type tally struct {
	BcopySent, BcopyReceived                   Counts
	ControlSent, ControlReceived, CreditStalls uint64
}

func (t *Traffic) add(o Traffic) {
	t.BcopySent.add(o.BcopySent)
	t.BcopyReceived.add(o.BcopyReceived)
	t.ControlSent += o.ControlSent
	t.ControlReceived += o.ControlReceived
	t.CreditStalls += o.CreditStalls
	t.ZCopySent += o.ZCopySent
	t.ZCopyReceived += o.ZCopyReceived
	t.Advertised += o.Advertised
	t.Cancels += o.Cancels
	t.SendSmSent += o.SendSmSent
	t.SendSmCame += o.SendSmCame
	t.ModeChanges += o.ModeChanges
}

// carried returns the connection's traffic, with what zcopy has counted. Called
// with mu held.
func (c *conn) carried() Traffic {
	t := Traffic{
		BcopySent:       c.traffic.BcopySent,
		BcopyReceived:   c.traffic.BcopyReceived,
		ControlSent:     c.traffic.ControlSent,
		ControlReceived: c.traffic.ControlReceived,
		CreditStalls:    c.traffic.CreditStalls,
	}
	if c.appender != nil {
		t.BcopySent.Bytes = c.appender.Sent() // with what was appended
	}
	if c.session.ZSource == nil {
		return t
	}
	out, in := c.session.ZSource.Counts(), c.session.ZSink.Counts()
	t.ZCopySent, t.ZCopyReceived = out.Bytes, in.Bytes
	t.Advertised = out.Adverts + in.Adverts
	t.Cancels = out.Cancels + in.Cancels
	t.SendSmSent, t.SendSmCame = in.SendSm, out.SendSm
	t.ModeChanges = out.ModeChanges + in.ModeChanges
	return t
}

// ConnStats is the state of one connection at a moment.
type ConnStats struct {
	Device string
	// Declined says of the devices that came before Device in this end's list, by
	// name, why they are not used, and of others that this program or machine lacks.
	Declined map[string]string
	Traffic
	Buffers        int // our private buffers
	BufferSize     int // bytes in each of them
	PeerBufferSize int // bytes in each of the peer's
	Unread         int // bytes that have come and were not read
}

func (c *conn) Stats() ConnStats {
	c.mu.Lock()
	defer c.mu.Unlock()
	return ConnStats{
		Device:         c.device,
		Declined:       c.declined.table(),
		Traffic:        c.carried(),
		Buffers:        c.session.Target,
		BufferSize:     c.session.Sink.Size(),
		PeerBufferSize: c.session.Source.Size(),
		Unread:         c.session.Sink.Bytes(),
	}
}

// Totals are the statistics of all SDP connections of this process.
type Totals struct {
	Open   int    // connections that are open now
	Opened uint64 // connections that ever were
	// Closing is how many connections were closed and are still delivering what their
	// Writes had accepted; see WaitClosed. CloseResets counts those that were reset
	// because there were too many.
	Closing     int
	CloseResets uint64
	// Declined counts the devices that were allowed for a connection and that it does
	// not use, for the reasons in ConnStats.Declined.
	Declined uint64
	// Memory is how many bytes all connections have promised to their peers, used or
	// not, with shm's large rings; MemoryLimit is what they may promise, but for the least
	// that each has.
	Memory, MemoryLimit int64
	Traffic
}

// conns are the connections that are open, and the sum over those that were.
var conns struct {
	mu       sync.Mutex        // above every Conn.mu
	open     map[*conn]opening // those that are closing included
	opened   uint64
	closed   Traffic
	byDevice deviceCounts // of opened
}

// Stats returns the totals of this process. Safe for concurrent use.
func Stats() Totals {
	conns.mu.Lock()
	defer conns.mu.Unlock()
	t := Totals{
		Opened: conns.opened, Declined: declined.Load(), Traffic: conns.closed,
		Memory: budget.Process.Used(), MemoryLimit: budget.Process.Limit(),
	}
	for c := range conns.open {
		c.mu.Lock()
		t.add(c.carried())
		if !c.closed {
			t.Open++
		}
		c.mu.Unlock()
	}
	lingering.mu.Lock()
	t.Closing, t.CloseResets = len(lingering.conns), lingering.resets
	lingering.mu.Unlock()
	return t
}

// count has Stats include the connection.
func (c *conn) count(dialled bool, log *slog.Logger) {
	o := opening{at: time.Now().UnixNano(), dialled: dialled, log: log}
	conns.mu.Lock()
	if conns.open == nil {
		conns.open = make(map[*conn]opening)
	}
	conns.opened++
	o.id = conns.opened
	conns.open[c] = o
	conns.byDevice.add(c.device)
	conns.mu.Unlock()
	o.logUp(c)
}

// uncount moves the connection from the open ones to the sum.
func (c *conn) uncount() {
	conns.mu.Lock()
	o := conns.open[c]
	delete(conns.open, c)
	c.mu.Lock()
	c.promise.end()
	carried, violation, err := c.carried(), c.failed && c.recvErr != errUnanswered, c.recvErr
	conns.closed.add(carried)
	c.mu.Unlock()
	conns.mu.Unlock()
	o.logEnd(c, carried, violation, err)
}
