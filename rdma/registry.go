package rdma

import (
	"context"
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
// One end invites: it listens, and names to the other a place and a token, over
// the TCP connection. The other end dials the place. Both say something with
// that, as they do when they connect over TCP: what is private to them here is
// SDP's Hello and HelloAck. All methods are safe for concurrent use.
type Stepper interface {
	Device
	// Reaches returns nil if the device can connect this end with the peer, as far
	// as that can be told before it is tried, and otherwise why it cannot.
	Reaches(p Peer) error
	// Listen makes a place that peers can dial.
	Listen(cfg StepConfig) (Place, error)
	// Dial opens a channel to where the peer's invitation says. settle gets what
	// the peer has answered to private, and returns how many RDMA Reads of ours
	// may be outstanding there, or an error to give up.
	Dial(ctx context.Context, a Address, cfg StepConfig, private []byte, settle func(reply []byte) (ord int, err error)) (QueuePair, error)
}

// Peer is what an end knows of the other before they step up.
type Peer struct {
	// SameHost: both run on one kernel, in one network namespace. The end that
	// dials can only hope so.
	SameHost bool
	// Local and Remote are the ends of the TCP connection, as this end sees them;
	// invalid if there is none.
	Local, Remote netip.AddrPort
	// PID is the peer's process, if the connection underneath tells: the channel
	// is to be with that one. 0 if not known.
	PID int
}

// Address is where the one dials that has been invited.
type Address struct {
	Token  [16]byte // good for one channel
	Socket string   // the name of an abstract Unix socket, without the zero byte
	Port   uint16   // rdma_cm's
	// Local and Remote are the hosts at the ends of the TCP connection, as the one
	// that dials sees them; invalid if there is none.
	Local, Remote netip.Addr
	// At is how the one that dials has found the other end. A Keeper keeps the
	// channel for the next connection that begins there; not if it is empty.
	At string
}

// StepConfig is what a caller wants of a channel.
type StepConfig struct {
	IRD              int   // RDMA Reads of the peer's that may be outstanding here
	Buffers, BufSize int   // receive buffers that are there when the channel comes up
	UIDs             []int // users, beside our own, whose programs may be the peer
	// ZeroCopy: the program wants RDMA Reads and Writes even where the device would
	// copy. A device may leave them out if either end does not want them.
	ZeroCopy bool
	// Timeout is how long a peer may take that has come to a place.
	Timeout time.Duration
}

// Place is where peers dial.
type Place interface {
	// Invite lets one peer come. answer gets what it says, and returns what to
	// answer, and how many RDMA Reads of ours may be outstanding there; or an error
	// to send it away.
	Invite(p Peer, answer func(private []byte) (reply []byte, ord int, err error)) (Invitation, error)
	// Close ends the place and every invitation to it, and returns when no
	// goroutine of theirs is left.
	Close() error
}

// Invitation is for one peer.
type Invitation interface {
	Address() Address
	// Take waits for the peer, and returns the channel. Once.
	Take(ctx context.Context) (QueuePair, error)
	// Withdraw ends the invitation, and the channel if nobody has taken it.
	Withdraw()
}

// A Keeper is a Stepper whose channels can outlive their connections: when both
// ends have closed one in good order, it is kept for a moment, and serves the
// next connection of the same two processes. What was checked when it was opened
// need not be checked again. Its Places are KeepingPlaces.
type Keeper interface {
	Stepper
	// Idle takes a channel that was dialled with this At, and whose peer cfg
	// allows; nil if there is none. Safe for concurrent use.
	Idle(at string, cfg StepConfig) Idle
}

// Ticket names an idle channel to the end that listens, for one connection.
type Ticket [32]byte

// Idle is a channel between two connections, at the end that dials. Whoever has
// taken it calls Resume or Drop, once.
type Idle interface {
	// Ticket is to be shown to the peer.
	Ticket() Ticket
	// Resume returns the queue pair, when the peer says that it has resumed its
	// end; an error if it has not. ord is how many RDMA Reads of ours may be
	// outstanding there.
	Resume(ord int) (QueuePair, error)
	// Drop ends the channel.
	Drop()
}

// KeepingPlace is the Place of a Keeper.
type KeepingPlace interface {
	Place
	// Resume returns the queue pair of the idle channel that the peer has shown the
	// ticket of, or an error if there is none, or it is not this peer's. ord is how
	// many RDMA Reads of ours may be outstanding there. Safe for concurrent use.
	Resume(p Peer, t Ticket, ord int) (QueuePair, error)
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
