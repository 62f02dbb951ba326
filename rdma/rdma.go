// Package rdma is the RNIC interface: what the Sockets Direct Protocol asks of
// an RDMA device, in the words of verbs, and the registry of the devices that
// this program has.
//
// A device gives out queue pairs. A [QueuePair] is one end of a connected,
// reliable, ordered channel that carries messages (Send), and moves bytes
// between the memories of the two ends (RDMA Read and RDMA Write). Package
// rdmatest has the suite that every device passes.
package rdma

import (
	"errors"
	"fmt"
	"syscall"
	"time"
)

// STag names a registered region to the peer: iWARP's steering tag,
// InfiniBand's rkey. 0 names none.
type STag uint32

// Access says what the peer may do to a registered region.
type Access uint8

const (
	RemoteRead  Access = 1 << iota // the peer's RDMA Reads may fetch from it
	RemoteWrite                    // the peer's RDMA Writes may fill it
)

// Region is a caller's memory while the peer may reach it.
type Region struct {
	STag STag
	VA   uint64 // the tagged offset of its first byte
}

// SendWR is one message to send: Header and Payload together are what the peer
// finds in one of its receive buffers. The device has no use for either when
// PostSend has returned.
type SendWR struct {
	Header     []byte // 1 to 64 bytes
	Payload    []byte // nil in a message of the protocol's own
	Solicited  bool   // Send with Solicited Event
	Invalidate STag   // Send with Invalidate: the peer's STag to revoke; 0 for none
	// Most is how many bytes the message may have in the end, if the QueuePair is an
	// Appender: more may be appended to it. 0: it is complete.
	Most int
}

// ReadWR is an RDMA Read of len(Local) bytes, from VA in the peer's region STag
// into Local, which belongs to the device until the completion with this ID, or
// until Close or Abort has returned.
type ReadWR struct {
	ID    uint64
	Local []byte
	STag  STag
	VA    uint64
}

// WriteWR is an RDMA Write of len(Local) bytes, from Local, which must not
// change until the completion with this ID, to VA in the peer's region STag.
type WriteWR struct {
	ID    uint64
	Local []byte
	STag  STag
	VA    uint64
}

// Op is the kind of work that has completed.
type Op uint8

const (
	OpReceive Op = iota // a message came
	OpRead              // an RDMA Read's bytes are all in Local
	OpWrite             // an RDMA Write's Local is the caller's again
)

// Completion tells that one piece of work is done. Work that fails ends the
// queue pair, so there is no status in it.
type Completion struct {
	Op          Op
	ID          uint64 // of the ReadWR or WriteWR
	Buffer      Buffer // OpReceive: the message, lent until released
	Invalidated STag   // OpReceive: the region of ours that the peer revoked with it
}

// Buffer is a receive buffer on loan from the device.
type Buffer struct {
	Bytes []byte // the message; the borrower may read it, not write it
	Owner Lender
}

// Release gives the buffer back to the device, which posts it again. Once for
// each Buffer, from any goroutine, also after the queue pair has ended.
func (b Buffer) Release() { b.Owner.Release() }

// Lender is the device's side of a Buffer.
type Lender interface{ Release() }

// Limits are what a connected queue pair can do.
type Limits struct {
	MaxMessage int // bytes in one Send, header and payload
	SendBatch  int // messages that are worth posting with one PostSend
	IRD        int // the peer's RDMA Reads that may be outstanding here
	ORD        int // our RDMA Reads that may be outstanding there; a further one gets ErrNoRoom
	Buffers    int // receive buffers, at most; 0: any number
	// Threshold is how many bytes a program writes at once from which RDMA Read and
	// Write beat copying through the receive buffers, by measurement; 0: they never
	// do on this device.
	Threshold int
	// Invalidate: a message may invalidate a region of the peer's (Send with
	// Invalidate).
	Invalidate bool
	// Outlives: what PostSend has taken reaches the peer even if this process ends
	// now. A channel that ends in io.EOF has then delivered everything, whether or not
	// the peer's process lived to close it.
	Outlives bool
	// Elastic: ProvideReceive takes effect at once, on buffers that are posted
	// already too, because the device finds the memory when a message comes.
	Elastic bool
	// BufferedOnly: PostRead and PostWrite fail at both ends, whatever IRD and ORD
	// say, because neither end can reach the other's memory.
	BufferedOnly bool
}

// Idler is a QueuePair that holds memory which an idle connection has no use
// for. Idle gives it back, as far as it is not in use; it never blocks, and is
// safe for concurrent use.
type Idler interface{ Idle() }

// Finisher is implemented by queue pairs that can be asked, instead of waited for in
// Drain. Finish ends the sending half after what was posted, as far as that is out of
// this process, and reports that closing the channel now cannot destroy any of it, or
// that the channel has ended. It never blocks, and may be called again. Nobody may be
// posting, nor come after.
type Finisher interface{ Finish() bool }

// Settler is implemented by queue pairs that may hold in this process what PostSend has
// taken, though they are not Busy.
type Settler interface {
	// Settled reports that nothing of that is in this process. Safe for concurrent use.
	Settled() bool
	// Settle waits until it is, WakeRoom was called, or the sending half has ended. It
	// belongs to the group of WaitRoom.
	Settle() error
}

// Appender is implemented by queue pairs whose messages can grow after PostSend, for
// as long as the peer's end has not taken them.
type Appender interface {
	// Append adds b to the end of the last message that was posted, and reports
	// whether it did. It does not if that message was posted without SendWR.Most or
	// would grow beyond it, if something was posted after it, if the peer's end has
	// taken it, or if there is no room. The peer then finds the message longer by
	// len(b). It never blocks. Safe for concurrent use with everything.
	Append(b []byte) bool
	// Sent returns how many bytes of payload have been posted and appended. Safe for
	// concurrent use, also after Close.
	Sent() uint64
}

// Narrow is implemented by queue pairs that need memory for long messages which they may
// not have.
type Narrow interface {
	// Width returns how long the next message may be, in bytes, if the caller would
	// like n: n, if there is memory for that or it can be had, and less if not. A
	// message that is longer all the same is taken, at the expense of the budget.
	// It never blocks. Safe for concurrent use.
	Width(n int) int
}

// ReadReporter is implemented by queue pairs that tell the peer's end how much of
// what was sent the program has read, so that the peer knows, when this process has
// ended, whether anything was lost.
type ReadReporter interface {
	// ReportRead tells that the program has read n more bytes of payload, or, if n is
	// negative, fewer than was told. One goroutine at a time calls it, and none after
	// Close or Abort.
	ReportRead(n int)
}

// BusyPoller is a QueuePair whose Wait can look for completions before it parks.
type BusyPoller interface {
	// SetBusyPoll has Wait look for d before it parks, not at all if d is negative, and as
	// long as it pays and the process can afford it if d is 0, which is the default. If d
	// is negative WaitRoom does not look either. Before the first Wait.
	SetBusyPoll(d time.Duration)
}

// Distant is a QueuePair whose peer may be on another host, and which is told
// nothing when that goes without a word while nothing is sent.
type Distant interface {
	// Lost ends the queue pair with err: the peer's host is gone. Safe for concurrent
	// use.
	Lost(err error)
}

// A QueuePair is one end of a channel.
//
// Concurrency: Poll and Wait belong to one goroutine at a time, which the caller
// sees to; so do PostSend, PostRead and PostWrite (together), and WaitRoom. The
// three groups may run beside each other and beside everything else.
//
// Errors: whatever the peer does wrong, and every loss of the channel, ends the
// queue pair. What had arrived before is still delivered by Poll and Wait; then
// they return the reason, from then on always the same: io.EOF when the peer
// closed the channel between two messages, a *ProtocolError or *TerminateError
// for a violation, the transport's error otherwise. The sending half may end
// before the receiving half does: PostSend then fails while Poll still delivers.
//
// Memory: the Local of an RDMA Read is the caller's again when the Read has completed,
// or when Close or Abort has returned: nothing is written to it from then on. The end
// of the queue pair alone does not give it back.
type QueuePair interface {
	// PostSend posts messages in order and returns how many of them the device
	// took; those are whole from the caller's point of view, whatever happens
	// afterwards but the end of the channel. Fewer than len(wrs) with a nil error
	// is backpressure: the device is Busy. It never blocks. When the device is
	// Busy it still takes messages without payload, at least 512 of them, which is
	// more than the credit of a peer can ask for; past its bound PostSend returns
	// ErrNoRoom.
	PostSend(wrs []SendWR) (n int, err error)

	// PostRead and PostWrite never block. ErrNoRoom: ORD Reads are outstanding,
	// or too much is queued; try again after a completion, or after WaitRoom if
	// none is outstanding. Reads complete in the order in which they were posted,
	// and so do Writes. A later PostSend is carried after an earlier PostWrite.
	PostRead(wr ReadWR) error
	PostWrite(wr WriteWR) error

	// Busy reports that a message with payload would be refused now. Safe for
	// concurrent use.
	Busy() bool

	// WaitRoom parks until the device is not Busy, WakeRoom was called, or the
	// sending half has ended. While it is parked it carries what the device has
	// taken.
	WaitRoom() error

	// WakeRoom makes WaitRoom return, now or the next time. Safe for concurrent
	// use.
	WakeRoom()

	// Flush has the device carry on alone with what it has taken. Whoever posts
	// and does not go to WaitRoom while the device is Busy calls Flush. It never
	// blocks. Safe for concurrent use.
	Flush()

	// ProvideReceive sets how many receive buffers there are, lent ones
	// included, and how many bytes each has. It returns how many buffers of
	// another size are still posted before the first of this one: 0 from an
	// elastic device, and math.MaxInt32 if there is no memory for more of them, or
	// for larger ones: then nothing has changed. A message for which no buffer is
	// posted, or that is longer than a buffer, is the peer's violation. Safe for
	// concurrent use.
	ProvideReceive(count, size int) (old int)

	// Poll fills wcs with completions and returns how many there were, 0 with
	// every error. It never blocks and never waits for the transport to take
	// anything: what the peer's Reads ask for the device carries by itself.
	Poll(wcs []Completion) (int, error)

	// Wait is Poll that parks until there is a completion, Wake was called (0,
	// nil), or the queue pair ended.
	Wait(wcs []Completion) (int, error)

	// Wake makes Wait return, now or the next time. Safe for concurrent use.
	Wake()

	// Register exposes b to the peer until Invalidate, or a Send with Invalidate
	// from the peer, or the end of the queue pair. Safe for concurrent use.
	Register(b []byte, access Access) (Region, error)

	// Invalidate ends the exposure: no access lands after it has returned. It
	// waits for at most one segment that is being moved. Of an STag that names
	// nothing (any more) it does nothing. Safe for concurrent use.
	Invalidate(s STag)

	// Limits returns what was agreed when the queue pair came up.
	Limits() Limits

	// Drain waits, at most d, until closing the channel cannot destroy what was
	// sent: it has left this process, and the peer's end has it. It returns
	// os.ErrDeadlineExceeded if some of it is still in this process then. Nobody
	// may be in PostSend, PostRead, PostWrite or WaitRoom, nor come after.
	Drain(d time.Duration) error

	// Close ends the channel so that the peer finds its end behind what was
	// sent. Abort ends it at once and lets the peer see a reset. Either ends
	// every call in progress and every later one, Register too, with net.ErrClosed,
	// unless there was an error before; invalidates every region; gives the memory of
	// RDMA Reads back; and returns when no goroutine of the device is left. What had not left this process is lost, and the peer
	// does not see io.EOF then: Drain comes first. Safe for concurrent use, and
	// repeatedly.
	Close() error
	Abort() error
}

// ErrNoRoom says that the device cannot take this work now; it is no failure.
var ErrNoRoom = errors.New("rdma: no room in the queue")

// ProtocolError is a violation by the peer that this end has noticed. It has
// been told so if the transport has a message for it.
type ProtocolError struct {
	Rule string // where the rule stands, as "RFC 5041 §7.2"
	What string // what the peer did
}

// Error names the rule and the act.
func (e *ProtocolError) Error() string {
	return fmt.Sprintf("rdma: peer violated %s: %s", e.Rule, e.What)
}

// TerminateError is a violation of ours that the peer has noticed. To errors.Is it is
// syscall.ECONNRESET too, as every end that the peer makes without a good one: the
// memory of a process that is killed is gone before its connections are, and then its
// hardware may take what still comes for a violation.
type TerminateError struct {
	Layer, Type, Code uint8 // RFC 5040 §4.8
}

// Error says what the peer's Terminate message does.
func (e *TerminateError) Error() string {
	return fmt.Sprintf("rdma: peer terminated the stream: layer %d, type %d, code %#x", e.Layer, e.Type, e.Code)
}

// Is reports that target is syscall.ECONNRESET.
func (e *TerminateError) Is(target error) bool { return target == syscall.ECONNRESET }
