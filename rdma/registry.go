package rdma

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"time"
)

// Device is a kind of RNIC that this program has.
type Device interface {
	// Name is what Config and SDP_DEVICES call it: "iwarp", "shm", "verbs".
	Name() string
	// Probe returns nil if the device can be used on this machine, and otherwise
	// why it cannot.
	Probe() error
}

// A Stepper is a Device whose channels are its own: two ends that have met over
// TCP step up to one of them, and the TCP connection stays beside it. A device
// that is no Stepper is the TCP connection itself.
//
// A Stepper is an [Offerer], whose channel the client offers with its Request, or a
// [Dialler], whose channel the client dials when it has been invited. All methods are
// safe for concurrent use.
type Stepper interface {
	Device
	// Reaches returns nil if the device can connect this end with the peer, as far
	// as that can be told before it is tried, and otherwise why it cannot.
	Reaches(p Peer) error
	// Listen makes the end that listens ready: an [OfferedPlace] of an Offerer, an
	// [InvitingPlace] of a Dialler.
	Listen(cfg StepConfig) (Place, error)
}

// Peer is what an end knows of the other before they step up.
type Peer struct {
	// SameHost: both run on one kernel, in one network namespace. The end that
	// dials can only hope so.
	SameHost bool
	// Local and Remote are the ends of the TCP connection, as this end sees them;
	// invalid if there is none.
	Local, Remote netip.AddrPort
	// InDir: the ends meet in the directory StepConfig.Dir, and may be in different network
	// namespaces.
	InDir bool
	// PID is the peer's process, if the connection underneath tells: the channel
	// is to be with that one. 0 if not known.
	PID int
}

// StepConfig is what a caller wants of a channel.
type StepConfig struct {
	IRD              int   // RDMA Reads of the peer's that may be outstanding here
	Buffers, BufSize int   // receive buffers that are there when the channel comes up
	UIDs             []int // users, beside our own, whose programs may be the peer
	// ZeroCopy: the program wants RDMA Reads and Writes even where the device would
	// copy. A device may leave them out if either end does not want them.
	ZeroCopy bool
	// Dir is a directory in which the ends may meet, if they are in different network
	// namespaces: of a client that offers a channel, where the channel begins. "": none.
	Dir string
	// Timeout is how long a peer may take that has come to a place, or that the other
	// end of a channel waits for.
	Timeout time.Duration
}

// Place is the end of a Stepper that listens.
type Place interface {
	// Close ends the place and every invitation to it, and returns when no
	// goroutine of theirs is left.
	Close() error
}

// Pending is a channel that is being opened, at the end that listens. One goroutine at a
// time uses it.
type Pending interface {
	// Take waits for the client, and returns the channel; [ErrDeclined] if the client
	// does without it. Once.
	Take(ctx context.Context) (QueuePair, error)
	// Withdraw ends it, and the channel if nobody has taken it. After Take it is
	// nothing.
	Withdraw()
}

// ErrDeclined says that the client goes on without the channel that it has offered.
var ErrDeclined = errors.New("rdma: the client does without the channel")

// An Offerer is a Stepper whose channels the client offers with its Request, for the
// other end to take at once.
//
// Its channels can outlive their connections: when both ends have closed one in good
// order, it is kept for a moment, and serves the next connection of the same two
// processes. What was checked when it was opened need not be checked again.
type Offerer interface {
	Stepper
	// Idle takes a channel that was offered with this at, and whose peer cfg allows;
	// nil if there is none.
	Idle(at string, cfg StepConfig) Offer
	// Offer begins a channel. at is how the other end was found: the channel is kept for
	// the next connection that begins there; not if it is empty.
	Offer(at string, cfg StepConfig) (Offer, error)
}

// Ticket is what the end that listens needs to take a channel that was offered: it is good
// once, and names no other.
type Ticket [32]byte

// Offer is a channel that the client offers. Whoever has it calls Take, and Drop unless Take
// succeeds. One goroutine at a time uses it.
type Offer interface {
	// Ticket is to be shown to the peer.
	Ticket() Ticket
	// Prepare makes ready what Take needs, while there is nothing else to do.
	Prepare()
	// Take returns the queue pair when the peer says that it has taken its end; an
	// error if it has not, or may not, of which the peer hears by Drop. It waits for the
	// peer, as long as ctx allows, only if the program wants zero copy. ord is how many
	// RDMA Reads of ours may be outstanding there.
	Take(ctx context.Context, ord int) (QueuePair, error)
	// Drop ends the channel, of which the peer hears.
	Drop()
}

// OfferedPlace is the Place of an Offerer. Its methods wait for nothing, and are safe for
// concurrent use. ord is how many RDMA Reads of ours may be outstanding at the client's end.
type OfferedPlace interface {
	Place
	// Resume returns the queue pair of an idle channel, or an error if there is none with
	// this ticket, or it is not this peer's.
	Resume(p Peer, t Ticket, ord int) (QueuePair, error)
	// Meet opens its end of a channel that begins.
	Meet(p Peer, t Ticket, ord int) (Meeting, error)
}

// Meeting is a channel that the client has offered, and whose other end is open.
type Meeting interface {
	Pending
	// Decided reports that Take would not wait. It never blocks.
	Decided() bool
}

// A Dialler is a Stepper whose channels the client dials. The end that listens invites it:
// it names a place and a token, over the TCP connection. Both say something when they
// meet there, as they do when they connect over TCP: what is private to them here is
// SDP's Hello and HelloAck.
type Dialler interface {
	Stepper
	// Dial opens a channel to where the peer's invitation says. settle gets what
	// the peer has answered to private, and returns how many RDMA Reads of ours
	// may be outstanding there, or an error to give up.
	Dial(ctx context.Context, a Address, cfg StepConfig, private []byte, settle func(reply []byte) (ord int, err error)) (QueuePair, error)
}

// Address is where the client dials that has been invited.
type Address struct {
	Token [16]byte // good for one channel
	Port  uint16   // rdma_cm's
	// Local and Remote are the hosts at the ends of the TCP connection, as the one
	// that dials sees them; invalid if there is none.
	Local, Remote netip.Addr
}

// InvitingPlace is the Place of a Dialler.
type InvitingPlace interface {
	Place
	// Invite lets one peer come. answer gets what it says, and returns what to
	// answer, and how many RDMA Reads of ours may be outstanding there; or an error
	// to send it away.
	Invite(p Peer, answer func(private []byte) (reply []byte, ord int, err error)) (Invitation, error)
}

// Invitation is for one peer.
type Invitation interface {
	Pending
	Address() Address
}

var registry struct {
	sync.RWMutex
	byName map[string]Device
}

// RegisterDevice adds a device, from its package's init. It panics if the name
// is taken.
func RegisterDevice(d Device) {
	registry.Lock()
	defer registry.Unlock()
	if _, taken := registry.byName[d.Name()]; taken {
		panic("rdma: device " + d.Name() + " registered twice")
	}
	if registry.byName == nil {
		registry.byName = make(map[string]Device)
	}
	registry.byName[d.Name()] = d
}

// LookupDevice returns the device of that name, if this program has it. Safe
// for concurrent use.
func LookupDevice(name string) (Device, bool) {
	registry.RLock()
	defer registry.RUnlock()
	d, ok := registry.byName[name]
	return d, ok
}
