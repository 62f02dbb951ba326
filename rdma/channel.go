package rdma

import (
	"context"
	"errors"
	"net/netip"
	"time"
)

// A Transport is a Device that makes channels of its own. Two ends that are connected by TCP
// step up to such a channel, and the TCP connection stays open beside it. Any other device
// uses the TCP connection itself.
//
// A Transport is either an [Offerer], whose channel the client offers with its Request, or a
// [Dialler], whose channel the client dials after the server has invited it. All methods are
// safe for concurrent use.
type Transport interface {
	Device
	// Reaches returns nil if the device can probably connect this end with the peer, and
	// otherwise the reason why it cannot. It does not try.
	Reaches(p Peer) error
	// Listen prepares the server's end. It returns an [OfferListener] for an Offerer, and an
	// [InviteListener] for a Dialler.
	Listen(cfg ChannelConfig) (ChannelListener, error)
}

// Peer is what an end knows about the other one before they step up.
type Peer struct {
	// SameHost says that both run on one kernel, in one network namespace. The client assumes
	// it from the addresses.
	SameHost bool
	// Local and Remote are the ends of the TCP connection as this end sees them. They are
	// invalid if there is none.
	Local, Remote netip.AddrPort
	// InDir says that the ends meet in the directory ChannelConfig.Dir, and may be in different
	// network namespaces.
	InDir bool
	// PID is the process that must be at the other end of the channel, or 0 if it is not known.
	PID int
}

// ChannelConfig says how to make a channel.
type ChannelConfig struct {
	IRD              int   // RDMA Reads of the peer that may be outstanding here
	Buffers, BufSize int   // receive buffers that a new channel has
	UIDs             []int // users, besides this process's own, whose programs may be the peer
	// ZeroCopy says that RDMA Reads and Writes may be used even if the device copies streams. A
	// device may leave them out if either end does not want them.
	ZeroCopy bool
	// Dir is a directory in which the ends may meet if they are in different network
	// namespaces, or "". The channel that a client offers begins there.
	Dir string
	// Timeout is how long a peer may take to open a channel after it has connected.
	Timeout time.Duration
}

// ChannelListener is a listener for a Transport's channels.
type ChannelListener interface {
	// Close ends the listener and all its invitations. It returns when their goroutines have
	// ended.
	Close() error
}

// PendingChannel is a channel that is being opened, at the server's end. It is not safe for
// concurrent use.
type PendingChannel interface {
	// Take waits for the client and returns the channel, or [ErrDeclined] if the client does
	// not use it. It is called once, except as Invitation says.
	Take(ctx context.Context) (QueuePair, error)
	// Withdraw ends the channel. After a successful Take it does nothing.
	Withdraw()
}

// ErrDeclined means that the client does not use the channel.
var ErrDeclined = errors.New("rdma: client declined the channel")

// An Offerer is a Transport whose channels the client offers with its Request, so that the
// server can open its end at once.
//
// A channel can outlive its connection: after both ends have closed it properly, it is kept
// for a short time, for the next connection of the same two processes. What was checked when
// it was opened is not checked again.
type Offerer interface {
	Transport
	// Idle returns a kept channel to the server at the address at, whose user cfg allows, or
	// nil if there is none.
	Idle(at string, cfg ChannelConfig) Offer
	// Offer makes a new channel. It is kept after use for the next connection to the same
	// address, unless at is empty.
	Offer(at string, cfg ChannelConfig) (Offer, error)
}

// Ticket identifies an offered channel to the server. It is valid once.
type Ticket [40]byte

// Offer is a channel that the client offers. Its owner calls Take, and Drop unless Take
// succeeds. It is not safe for concurrent use.
type Offer interface {
	// Ticket returns the ticket for the Request.
	Ticket() Ticket
	// Prepare does work for Take in advance, while the client has to wait anyway.
	Prepare()
	// Take returns the queue pair after the server has said that its end is open. It returns
	// an error if that end is not open, or belongs to a process that may not be the peer; the
	// server is then not told that the channel is taken. Take does not block. ord is how many
	// RDMA Reads of this end may be outstanding at the server.
	Take(ord int) (QueuePair, error)
	// Drop ends the channel, which the server notices.
	Drop()
}

// A Claimer is the Offer of a kept channel over which the client can tell the server, before it
// connects, which TCP connection it is about to make. The server then expects a Request there.
type Claimer interface {
	Offer
	// Claim tells the server the client's port. It returns false if the server takes no claim.
	Claim(port uint16) bool
	// Claimed reports whether the server has accepted a connection from that port, and if not,
	// whether it will not (over). It does not block.
	Claimed() (accepted, over bool)
}

// OfferListener is the ChannelListener of an Offerer. Its methods do not block and are safe for
// concurrent use. ord is how many RDMA Reads of this end may be outstanding at the client.
type OfferListener interface {
	ChannelListener
	// Resume returns the queue pair of the kept channel with this ticket, or an error if
	// there is none or it belongs to another peer.
	Resume(p Peer, t Ticket, ord int) (QueuePair, error)
	// Meet opens the server's end of a new channel.
	Meet(p Peer, t Ticket, ord int) (PendingOffer, error)
}

// A ClaimListener is an OfferListener whose clients may claim connections over kept channels.
type ClaimListener interface {
	OfferListener
	// Claimed returns the claim on the connection that was accepted from there, and tells its
	// client. It returns nil if there is none.
	Claimed(from netip.AddrPort) Claim
	// TakeClaims makes the listener take claims, as it does at first, or none. Over a channel that
	// was kept meanwhile it takes none until the channel was used again.
	TakeClaims(may bool)
}

// Claim is a client's claim on a connection that was accepted. One goroutine at a time uses it.
type Claim interface {
	// Expected reports whether the client may send its Request. After it has returned false the
	// client sends none. It does not block.
	Expected() bool
	// Release ends the claim. The client has sent its Request (asked) or not.
	Release(asked bool)
}

// PendingOffer is a new channel whose server's end is open. If ctx is done before the client has taken
// it, Take ensures that the client cannot take it any more, and returns [ErrDeclined].
type PendingOffer interface {
	PendingChannel
	// Decided reports whether Take would return at once. It does not block.
	Decided() bool
}

// A Dialler is a Transport whose channels the client dials. The server invites the client with
// an address and a token, over the TCP connection. On the new channel both exchange private
// data, which is SDP's Hello and HelloAck.
type Dialler interface {
	Transport
	// Dial opens a channel to the address of the invitation. settle gets the server's answer
	// to private, and returns how many of our RDMA Reads may be outstanding there, or an
	// error to give up.
	Dial(ctx context.Context, a Address, cfg ChannelConfig, private []byte, settle func(reply []byte) (ord int, err error)) (QueuePair, error)
}

// Starter is implemented by a Dialler whose receive buffers take memory before anything arrives.
type Starter interface {
	// Start returns the most receive buffers with which a connection begins, and the size of each
	// in bytes. There will be more when it is used.
	Start() (buffers, size int)
}

// Pinner is implemented by a Device that locks memory for RDMA hardware.
type Pinner interface {
	// Pinned returns how many bytes this process has locked, by the name of the hardware's device.
	Pinned() map[string]int64
}

// Address is the address that an invited client dials.
type Address struct {
	Token [16]byte // valid for one channel
	Port  uint16   // of rdma_cm
	// Local and Remote are the hosts at the ends of the TCP connection as the client sees
	// them. They are invalid if there is none.
	Local, Remote netip.Addr
	// TOS is the type of service (IPv6: the traffic class) of the TCP connection, which the channel's
	// packets should have too.
	TOS uint8
}

// InviteListener is the ChannelListener of a Dialler.
type InviteListener interface {
	ChannelListener
	// Invite allows one client to connect. answer gets its private data, and returns what to
	// reply and how many of our RDMA Reads may be outstanding there, or an error to refuse it.
	Invite(p Peer, answer func(private []byte) (reply []byte, ord int, err error)) (Invitation, error)
}

// Invitation allows one client to connect. It ends only when it is withdrawn, or the listener closed.
// If Take has returned because its ctx was done, it may be called again.
type Invitation interface {
	PendingChannel
	// Address returns the address for the client.
	Address() Address
}
