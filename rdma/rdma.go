// Package rdma is the interface between the Sockets Direct Protocol and its RDMA devices, in the
// terms of verbs, and the registry of the devices that a program has.
//
// A device makes queue pairs. A [QueuePair] is one end of a connected, reliable, ordered channel
// that carries messages (Send), and moves bytes between the memories of the two ends (RDMA Read and
// RDMA Write). Package rdmatest has the conformance suite for devices.
//
// Programs use package sdp. This package can be imported only because of the layout of the module, and promises
// no compatibility.
package rdma

import (
	"errors"
	"fmt"
	"syscall"
	"time"
)

// STag identifies a registered region to the peer: the steering tag of iWARP, the rkey of
// InfiniBand. 0 identifies none.
type STag uint32

// Access is what the peer may do with a registered region.
type Access uint8

const (
	RemoteRead  Access = 1 << iota // the peer's RDMA Reads may read it
	RemoteWrite                    // the peer's RDMA Writes may write it
)

// Region is a caller's memory that the peer may access.
type Region struct {
	STag STag
	VA   uint64 // the tagged offset of its first byte
}

// SendWR is one message to send. The peer finds Header followed by Payload in one of its receive
// buffers. The device does not use either after PostSend has returned.
type SendWR struct {
	Header     []byte // 1 to 64 bytes
	Payload    []byte // nil in a message of the protocol itself
	Solicited  bool   // Send with Solicited Event
	Invalidate STag   // Send with Invalidate: the peer's STag to revoke; 0 for none
}

// ReadWR is an RDMA Read of len(Local) bytes, from VA in the peer's region STag into Local. Local
// belongs to the device until the completion with this ID, or until Close or Abort has returned.
type ReadWR struct {
	ID    uint64
	Local []byte
	STag  STag
	VA    uint64
}

// WriteWR is an RDMA Write of len(Local) bytes, from Local to VA in the peer's region STag. Local
// must not change until the completion with this ID.
type WriteWR struct {
	ID    uint64
	Local []byte
	STag  STag
	VA    uint64
}

// Op is a kind of work.
type Op uint8

const (
	OpReceive Op = iota // a message has arrived
	OpRead              // all bytes of an RDMA Read are in Local
	OpWrite             // the Local of an RDMA Write belongs to the caller again
)

// Completion reports that one piece of work is done. It has no status, because work that fails
// ends the queue pair.
type Completion struct {
	Op          Op
	Invalidated STag   // OpReceive: the region of this end that the peer revoked with it
	ID          uint64 // of the ReadWR or WriteWR
	Buffer      Buffer // OpReceive: the message, lent until released
}

// Buffer is a receive buffer on loan from the device.
type Buffer struct {
	Bytes []byte // the message, which the borrower must not change
	Owner Lender
}

// Release returns the buffer to the device, which posts it again. It must be called once for each
// Buffer. Any goroutine may call it, also after the queue pair has ended.
func (b Buffer) Release() { b.Owner.Release() }

// Lender is the device's side of a Buffer.
type Lender interface{ Release() }

// Limits are what a connected queue pair can do.
type Limits struct {
	MaxMessage int // bytes in one Send, header and payload
	SendBatch  int // messages that are worth posting with one PostSend
	IRD        int // RDMA Reads of the peer that may be outstanding
	ORD        int // RDMA Reads of this end that may be outstanding; a further one gets ErrNoRoom
	Buffers    int // receive buffers, at most; 0: any number
	// Threshold is the size in bytes from which RDMA Read and Write of what a program writes are
	// faster than copying through the receive buffers, by measurement. 0: they never are on this
	// device.
	Threshold int
	// Invalidate: a message may invalidate a region of the peer (Send with Invalidate).
	Invalidate bool
	// Outlives: what PostSend has accepted reaches the peer even if this process ends
	// immediately. A channel that ends with io.EOF has then delivered everything, whether or not
	// the peer's process lived to close it.
	Outlives bool
	// Elastic: ProvideReceive takes effect at once, even on buffers that are already posted,
	// because the device finds the memory when a message arrives.
	Elastic bool
	// OverTCP: the TCP connection that the ends began with is the channel, so the options of its
	// socket take effect on it.
	OverTCP bool
	// Finishes: Finish reports what Drain would wait for.
	Finishes bool
	// Shrinks: Shrink frees memory.
	Shrinks bool
	// NeedsKeepalive: the device cannot detect, while idle, that a remote host has disappeared. The
	// caller has to find out, and calls Lost.
	NeedsKeepalive bool
}

// A QueuePair is one end of a channel.
//
// Concurrency: one goroutine at a time may call Poll and Wait; one at a time PostSend, PostRead and
// PostWrite (together); and one at a time WaitRoom. The caller ensures that. The three groups may
// run concurrently with each other, and with everything else.
//
// Errors: every violation by the peer, and every loss of the channel, ends the queue pair. Poll and
// Wait still deliver what had arrived before. Then they return the reason, which does not change:
// io.EOF if the peer closed the channel between two messages, io.ErrUnexpectedEOF if it did so in
// a message or after an RDMA Write that no message has followed, a *ProtocolError or
// *TerminateError for a violation, and the transport's error otherwise. The sending half may end
// before the receiving half: then PostSend fails while Poll still delivers.
//
// Memory: the Local of an RDMA Read belongs to the caller again when the Read has completed, or
// when Close or Abort has returned. The device does not write to it afterwards. The end of the
// queue pair alone does not return it.
//
// A device embeds [Base], which has the methods that only some devices need.
type QueuePair interface {
	// PostSend posts messages in order and returns how many of them the device accepted. From
	// the caller's point of view those are sent completely, unless the channel ends. Fewer than
	// len(wrs) with a nil error is back-pressure: the device is Busy. PostSend never blocks. A
	// device that is Busy still accepts messages without payload, at least 512 of them, or
	// Limits.Buffers if that is less and not 0: more than a peer's credit can ask for. Beyond its
	// bound PostSend returns ErrNoRoom.
	PostSend(wrs []SendWR) (n int, err error)

	// PostRead and PostWrite never block. They return ErrNoRoom if ORD Reads are outstanding or
	// too much is queued; the caller tries again after a completion, or after WaitRoom if no work
	// is outstanding. Reads complete in the order in which they were posted, and so do Writes.
	// A later PostSend is delivered after an earlier PostWrite.
	PostRead(wr ReadWR) error
	PostWrite(wr WriteWR) error

	// Busy reports whether a message with payload would be refused now. It is safe for concurrent
	// use.
	Busy() bool

	// WaitRoom parks until the device is not Busy, WakeRoom is called, or the sending half has
	// ended. While parked, it sends what the device has accepted.
	WaitRoom() error

	// WakeRoom makes WaitRoom return, now or the next time. It is safe for concurrent use.
	WakeRoom()

	// Flush makes the device send by itself what it has accepted. A caller that posts, and does
	// not go to WaitRoom while the device is Busy, must call Flush. It never blocks. It is safe
	// for concurrent use.
	Flush()

	// Settled reports whether this process holds nothing that PostSend has accepted. The result
	// means nothing while the device is Busy. Settled is safe for concurrent use.
	Settled() bool

	// Settle waits until Settled, until WakeRoom is called, or until the sending half has ended.
	// It belongs to the group of WaitRoom.
	Settle() error

	// Width returns how long the next message of a caller that wants n bytes may be: n if there
	// is memory for it, and less otherwise. A longer message is accepted nevertheless, and
	// exceeds the memory budget. Width never blocks. It is safe for concurrent use.
	Width(n int) int

	// ProvideReceive sets how many receive buffers there are, including lent ones, and the size
	// of each in bytes. It returns how many buffers of another size are still posted before the
	// first of this one: 0 from an elastic device, and math.MaxInt32 if there is no memory for
	// more or larger buffers; then nothing has changed. A message for which no buffer is posted,
	// or that is longer than a buffer, is a violation by the peer. ProvideReceive is safe for
	// concurrent use.
	ProvideReceive(count, size int) (old int)

	// Poll fills wcs with completions and returns how many there were; with every error 0. It
	// never blocks, and never waits until the transport accepts something: the device itself
	// sends what the peer's Reads ask for.
	Poll(wcs []Completion) (int, error)

	// Wait is like Poll but parks until there is a completion, Wake is called (0, nil), or the
	// queue pair has ended.
	Wait(wcs []Completion) (int, error)

	// Wake makes Wait return, now or the next time. It is safe for concurrent use.
	Wake()

	// SetBusyPoll makes Wait poll for d before it parks. If d is 0, the default, Wait polls as
	// long as that pays and the process can afford it. If d is negative, Wait does not poll.
	// SetBusyPoll must be called before the first Wait.
	SetBusyPoll(d time.Duration)

	// Register exposes b to the peer until Invalidate, a Send with Invalidate from the peer, or
	// the end of the queue pair. It is safe for concurrent use.
	Register(b []byte, access Access) (Region, error)

	// Invalidate ends the exposure: after it has returned, the peer's accesses have no effect. It
	// waits for at most one segment that is being moved. If s identifies no region (any more),
	// it does nothing. It is safe for concurrent use.
	Invalidate(s STag)

	// Limits returns what was agreed when the queue pair was connected.
	Limits() Limits

	// Shrink frees memory that an idle connection does not need, unless it is in use. Without
	// Limits.Shrinks it does nothing. It never blocks. It is safe for concurrent use, also after Close.
	Shrink()

	// Lost ends the queue pair with err, because the peer's host has disappeared. Without
	// Limits.NeedsKeepalive it does nothing. Lost is safe for concurrent use.
	Lost(err error)

	// Finish ends the sending half after everything that was posted, once that has left this
	// process. ended reports whether it has: then nothing may be posted any more. done reports
	// whether closing the channel now cannot destroy anything that was posted, or the channel
	// has ended; then ended is true as well. Without Limits.Finishes it only returns false.
	// Finish never blocks, and may be called again. No post may be in progress.
	Finish() (ended, done bool)

	// Drain waits, at most for d, until closing the channel cannot destroy what was sent, because
	// that has left this process and the peer's end has it. It returns os.ErrDeadlineExceeded if
	// some of it is still in this process then. No PostSend, PostRead, PostWrite or WaitRoom may
	// be in progress or follow.
	Drain(d time.Duration) error

	// Close ends the channel so that the peer finds its end after what was sent. Abort ends it at
	// once, and the peer sees a reset. Either ends every call in progress and every later one,
	// including Register, with net.ErrClosed, unless there was an error before. It invalidates
	// every region, returns the memory of RDMA Reads, and returns when no goroutine of the device
	// is left. What has not left this process is lost, and then the peer does not see io.EOF; so
	// Drain comes first. Close and Abort are safe for concurrent use, and may be called again.
	Close() error
	Abort() error
}

// ErrNoRoom means that the device cannot accept this work now. It does not end the queue pair.
var ErrNoRoom = errors.New("rdma: no room in the queue")

// ProtocolError is a violation by the peer that this end has detected. If the transport has a
// message for it, the peer has been told.
type ProtocolError struct {
	Rule string // where the rule is, as "RFC 5041 §7.2"
	What string // what the peer did
}

// Error names the rule and what the peer did.
func (e *ProtocolError) Error() string {
	return fmt.Sprintf("rdma: peer violated %s: %s", e.Rule, e.What)
}

// TerminateError is a violation by this end that the peer has detected. errors.Is also matches it
// with syscall.ECONNRESET, like every end of a channel that the peer did not close: when a process
// is killed, its memory is freed before its connections are closed, and its hardware may take what
// still arrives for a violation.
type TerminateError struct {
	Layer, Type, Code uint8 // RFC 5040 §4.8
}

// Error says what the peer's Terminate message does.
func (e *TerminateError) Error() string {
	return fmt.Sprintf("rdma: peer terminated the stream: layer %d, type %d, code %#x", e.Layer, e.Type, e.Code)
}

// Is reports whether target is syscall.ECONNRESET.
func (e *TerminateError) Is(target error) bool { return target == syscall.ECONNRESET }
