package rdma

import (
	"context"
	"net/netip"
)

// A Dialler is a Device that makes channels of its own. Two ends that are connected by TCP step up
// to such a channel, and the TCP connection stays open beside it. Any other device uses the TCP
// connection itself.
//
// The server invites the client with an address and a token, over the TCP connection, and the
// client dials that address. On the new channel both exchange private data, which is SDP's Hello
// and HelloAck. All methods are safe for concurrent use.
type Dialler interface {
	Device
	// Reaches returns nil if the device can probably connect this end with the peer, and
	// otherwise the reason why it cannot. It does not try.
	Reaches(p Peer) error
	// Start returns the most receive buffers with which a connection begins, and the size of each
	// in bytes: they take memory before anything arrives. There will be more when it is used.
	Start() (buffers, size int)
	// Listen prepares the server's end.
	Listen(cfg ChannelConfig) (InviteListener, error)
	// Dial opens a channel to the address of the invitation. settle gets the server's answer
	// to private, and returns how many of our RDMA Reads may be outstanding there, or an
	// error to give up.
	Dial(ctx context.Context, a Address, cfg ChannelConfig, private []byte, settle func(reply []byte) (ord int, err error)) (QueuePair, error)
}

// Peer is what an end knows about the other one before they step up.
type Peer struct {
	// Local and Remote are the ends of the TCP connection as this end sees them. They are
	// invalid if there is none.
	Local, Remote netip.AddrPort
}

// ChannelConfig says how to make a channel.
type ChannelConfig struct {
	IRD              int // RDMA Reads of the peer that may be outstanding here
	Buffers, BufSize int // receive buffers that a new channel has
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

// InviteListener is the server's end of a Dialler.
type InviteListener interface {
	// Invite allows one client to connect. answer gets its private data, and returns what to
	// reply and how many of our RDMA Reads may be outstanding there, or an error to refuse it.
	Invite(p Peer, answer func(private []byte) (reply []byte, ord int, err error)) (Invitation, error)
	// Close ends the listener and all its invitations. It returns when their goroutines have
	// ended.
	Close() error
}

// Invitation allows one client to connect. It ends only when it is withdrawn, or the listener
// closed. It is not safe for concurrent use.
type Invitation interface {
	// Address returns the address for the client.
	Address() Address
	// Take waits for the client and returns the channel. If it has returned because ctx was
	// done, it may be called again.
	Take(ctx context.Context) (QueuePair, error)
	// Withdraw ends the channel. After a successful Take it does nothing.
	Withdraw()
}
