package sdp

import (
	"log/slog"
	"time"

	"github.com/gosdp/gosdp/wire"
)

// Config changes how connections come up. nil, and the zero value of every
// field, mean the defaults, which are right for nearly everyone. A Config must
// not be changed while it is in use; it may be shared.
type Config struct {
	// Devices are the RDMA devices that may be used, by name, the best one
	// first: "shm", "verbs", "iwarp". Those that this program or this machine
	// does not have are passed over. "tcp" alone switches SDP off. The default is
	// what the environment variable SDP_DEVICES says, and without that every
	// device.
	Devices []string

	// ReplyTimeout is how long a peer may take to show that it speaks SDP, when
	// it is dialled; never more than a third of what is left of the context.
	// Default 1 s.
	ReplyTimeout time.Duration
	// LookTime is how long a client may take to show that it speaks SDP, when a
	// listener on "tcp" has accepted it. Default 50 ms.
	LookTime time.Duration
	// HandshakeTimeout is how long a listener lets a connection come up. Default
	// 5 s.
	HandshakeTimeout time.Duration
	// StepUpTimeout is how long two ends may take to open a channel of a better
	// device, beside the TCP connection; then they stay on iwarp. Default 500 ms.
	StepUpTimeout time.Duration
	// StepUpThroughProxies opens such a channel also to a client that sees other
	// ends of the TCP connection than the listener does: what is between them is
	// bypassed then.
	StepUpThroughProxies bool
	// PeerUIDs are the users, beside the program's own, with whose programs it may
	// share memory. Both ends have to agree.
	PeerUIDs []int
	// PlainTTL is how long it is remembered what an address speaks: one of plain
	// TCP need not be asked. Default 1 min.
	PlainTTL time.Duration

	// CRC checks the data of iwarp end to end between two programs on one host
	// too. Between hosts that is always done.
	CRC bool

	// ZCopyThreshold is how many bytes a Write has at most that is copied; a longer
	// one is advertised for the peer to fetch without a copy, or goes into memory
	// that the peer has advertised. 0 means what SDP_ZCOPY_THRESHOLD says, and
	// without that the device's own, found by measurement. Negative: everything is
	// copied, in both directions.
	ZCopyThreshold int

	// Logger is told, at debug level, why a connection does not use SDP, or a
	// device, or why one did not come up. Default: nobody is told.
	Logger *slog.Logger
}

// filled returns c with the defaults in place of what is zero, but for Devices;
// those are for the method devices.
func (c *Config) filled() Config {
	var f Config
	if c != nil {
		f = *c
	}
	for _, d := range []struct {
		field *time.Duration
		value time.Duration
	}{
		{&f.ReplyTimeout, time.Second},
		{&f.LookTime, 50 * time.Millisecond},
		{&f.HandshakeTimeout, 5 * time.Second},
		{&f.StepUpTimeout, 500 * time.Millisecond},
		{&f.PlainTTL, time.Minute},
	} {
		if *d.field == 0 {
			*d.field = d.value
		}
	}
	if f.Logger == nil {
		f.Logger = slog.New(slog.DiscardHandler)
	}
	return f
}

const (
	recvBuffers = 256      // private buffers posted at the start
	recvSize    = 16 << 10 // bytes in each of them at the start
	maxAdverts  = 16       // advertisements that the peer may have outstanding
	maxReads    = 16       // RDMA Reads outstanding, each way
)

// ourHello is what this end says of itself, whether it dials or listens.
func ourHello() wire.Hello {
	return wire.Hello{
		Bufs:       recvBuffers,
		MaxAdverts: maxAdverts,
		LocalRcvSz: recvSize,
		IRD:        maxReads,
		ORD:        maxReads,
	}
}
