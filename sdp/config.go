package sdp

import (
	"log/slog"
	"net/netip"
	"time"

	"github.com/gosdp/gosdp/wire"
)

// Config changes how connections come up. What it says goes before what the environment
// says, and that before the defaults. Programs that run with another user's rights than
// their caller's (set-user-ID, capabilities) ignore the environment. nil, and the zero value of every
// field, mean the defaults, which are right for nearly everyone. A Config must
// not be changed while it is in use; it may be shared.
type Config struct {
	// Devices are the RDMA devices that may be used, by name, the best one
	// first: "shm", "verbs", "iwarp". Those that this program or this machine
	// does not have are passed over. "tcp" alone switches SDP off. The default is
	// what the environment variable SDP_DEVICES says. Without that it is, on networks
	// "tcp" and "unix", what is faster than TCP: "shm", and "verbs" on RDMA hardware;
	// and every device on "sdp".
	Devices []string
	// Probe are the addresses of other hosts that may be asked whether they speak SDP,
	// and whose programs a listener on "tcp" waits for to say so, if a device of Devices
	// can get there. The default is what the environment variable SDP_PEERS says
	// ("10.0.0.0/8,fd00::/8"), and without that the subnets of this machine's RDMA
	// hardware. An empty list that is not nil means none. This host is never asked: it
	// is known who speaks SDP there.
	Probe []netip.Prefix

	// ReplyTimeout is how long a peer may take to show that it speaks SDP, when
	// it is dialled; never more than a third of what is left of the context.
	// Default 1 s.
	ReplyTimeout time.Duration
	// HandshakeTimeout is how long a listener lets a connection come up, and how long it
	// waits for the first bytes of a client that may speak SDP. Default 5 s.
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
	// ShmDir is a directory in which this program meets those of other containers on its
	// host that mount it too: then shm connects programs of different network namespaces.
	// It must be owned by root or the program's user, and be writable by nobody else, or
	// sticky, or by a group alone. The default is what the environment variable SDP_SHM_DIR
	// says, and without that there is none. One that cannot be used is reported to Logger once,
	// and passed over. See docs/containers.md.
	ShmDir string
	// Services are addresses that the kernel of this host translates to those of this
	// host's containers, such as the service addresses of a Kubernetes cluster. A listener
	// with a ShmDir accepts shm from a client that has connected to one of them. A proxy there
	// that keeps the clients' addresses is bypassed. The default is what the environment
	// variable SDP_SERVICES says ("10.96.0.0/12").
	Services []netip.Prefix
	// PlainTTL is how long it is remembered of an address on another host that it speaks
	// plain TCP, once it has said something else or closed. Silence is remembered for 5 s
	// at most. Default 1 min.
	PlainTTL time.Duration

	// CRC checks the data of iwarp end to end between two programs on one host
	// too. Between hosts that is always done.
	CRC bool

	// ZCopyThreshold is how many bytes a Write has at most that is copied; a longer
	// one is advertised for the peer to fetch without a copy, or goes into memory
	// that the peer has advertised. 0 means what SDP_ZCOPY_THRESHOLD says, and
	// without that the device's own, found by measurement. Negative: everything is
	// copied, in both directions. The device shm copies by itself, and does without only
	// if the programs at both ends set a threshold and run as the same user; they then
	// read each other's memory with process_vm_readv.
	ZCopyThreshold int

	// ReadBuffer bounds how many bytes a peer may have unread at this end, about, from the
	// first byte on; see Conn.SetReadBuffer. 0 means the default, 8 MB.
	ReadBuffer int
	// Memory is how many bytes all SDP connections of this process together may promise to
	// their peers: what these may have unread here, and shm's large rings. It belongs to
	// the process: a Dial or Listen with a Config that says something sets it for all
	// connections, and the last one counts. Each connection has 64 KB in any case, and an
	// eighth of Memory at most. 0 means what was set before, or what SDP_MEMORY says
	// ("512M", with K, M or G for powers of 1024), and without that a sixteenth of the
	// machine's memory, or of what the control group may use, between 16 MB and 4 GB.
	Memory int64

	// BusyPoll is how long a Read, or another call that waits for the peer, looks for bytes
	// before it parks, as SO_BUSY_POLL is for a socket: longer than 1 s is 1 s, and negative
	// means not at all. It ends early when events of the network have not been taken for
	// 50 µs, because every P of the process has work. It is not for Dial and Accept.
	// 0 means what SDP_BUSY_POLL says, in microseconds, of which 0 means not at all; and
	// without that for as long as it has lately paid off and the process can afford it: see
	// docs/concurrency.md. Linux only.
	BusyPoll time.Duration

	// Logger is told, at debug level, why a connection does not use SDP, or a
	// device, or why one did not come up; and, as a warning, that ShmDir cannot be used.
	// Default: nobody is told.
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
	maxAdverts = 16 // advertisements that the peer may have outstanding
	maxReads   = 16 // RDMA Reads outstanding, each way
)

// ourHello is what this end says of itself, whether it dials or listens, if a peer may
// have so many bytes unread and the budget has them; 0: the default.
func ourHello(readBuffer int) wire.Hello {
	bufs, size := recvBuffers, recvSize
	if readBuffer > 0 {
		bufs = min(bufs, max(leastBuffers, readBuffer/recvSize))
		size = min(size, max(smallestSize, readBuffer/bufs))
	}
	return wire.Hello{
		Bufs:       uint16(bufs),
		MaxAdverts: maxAdverts,
		LocalRcvSz: uint32(size),
		IRD:        maxReads,
		ORD:        maxReads,
	}
}
