package sdp

import (
	"log/slog"
	"net/netip"
	"time"

	"github.com/gosdp/gosdp/wire"
)

// Config changes how connections are set up. A nil Config and the zero value of every field
// mean the defaults, which suit nearly every program. A field that is set takes precedence
// over the environment, and the environment over the defaults. Programs that run with rights
// that their caller lacks (set-user-ID, capabilities) ignore the environment. A Config may be
// shared, and must not be changed while it is in use.
type Config struct {
	// Devices names the RDMA devices that may be used, the best one first: "shm", "verbs",
	// "iwarp". Devices that this program or this machine lacks are skipped. "tcp" alone
	// switches SDP off. The default is the environment variable SDP_DEVICES. If that is not
	// set, networks "tcp" and "unix" use what is faster than TCP, which is "shm", and "verbs"
	// on RDMA hardware; network "sdp" uses every device.
	Devices []string
	// Probe lists the addresses of other hosts that may be asked whether they speak SDP, if a
	// device of Devices reaches them. A listener on "tcp" waits for clients from there to say
	// so. The default is the environment variable SDP_PEERS ("10.0.0.0/8,fd00::/8"), and if
	// that is not set the subnets of this machine's RDMA hardware. An empty list that is not
	// nil allows none. Programs on this host are never asked, because the kernel tells which
	// of them speak SDP.
	Probe []netip.Prefix

	// ReplyTimeout is how long Dial waits for a server to show that it speaks SDP. It is
	// never more than a third of what is left of the context. Default 1 s.
	ReplyTimeout time.Duration
	// HandshakeTimeout is how long a listener waits for the first bytes of a client that may
	// speak SDP, and how long the whole set-up of a connection may take. Default 5 s.
	HandshakeTimeout time.Duration
	// StepUpTimeout is how long two ends may take to open the channel of a better device. After
	// that they do without it. Default 500 ms.
	StepUpTimeout time.Duration
	// StepUpThroughProxies makes a listener open such a channel also to a client that sees
	// other ends of the TCP connection than the listener does. It bypasses the proxy between
	// them.
	StepUpThroughProxies bool
	// PeerUIDs are the users, beside the program's own, with whose programs it may share
	// memory. Both ends must allow it.
	PeerUIDs []int
	// ShmDir is a directory that containers of one host share. If two programs in different
	// network namespaces have both mounted it, shm connects them. It must be owned by root or
	// the program's user, and must not be writable by every user unless it is sticky. The
	// default is the environment variable SDP_SHM_DIR, and if that is not set there is none. A
	// directory that cannot be used is reported to Logger once, and ignored. See
	// docs/containers.md.
	ShmDir string
	// Services are addresses that the kernel of this host translates to those of its
	// containers, such as the service addresses of a Kubernetes cluster. A listener with a
	// ShmDir accepts shm from a client that has connected to one of them. It bypasses a proxy
	// there that keeps the clients' addresses. The default is the environment variable
	// SDP_SERVICES ("10.96.0.0/12").
	Services []netip.Prefix
	// PlainTTL is how long Dial remembers that an address on another host speaks plain TCP,
	// after it has answered in another protocol or closed the connection. Silence is
	// remembered for 5 s at most. While an address is remembered, Dial does not ask it.
	// Default 1 min.
	PlainTTL time.Duration

	// CRC makes iwarp check the data end to end between two programs on one host too. Between
	// hosts it always does.
	CRC bool

	// ZCopyThreshold is the length in bytes up to which a Write is copied. A longer one is
	// advertised for the peer to fetch by RDMA, or written into memory that the peer has
	// advertised. 0 means SDP_ZCOPY_THRESHOLD, and if that is not set the device's own
	// threshold. If it is negative everything is copied, in both directions. On shm, Writes
	// are always copied unless the programs at both ends set a threshold and run as the same
	// user; they then read each other's memory with process_vm_readv.
	ZCopyThreshold int

	// ReadBuffer bounds, approximately, how many bytes that the peer has sent may be unread at
	// this end; see Conn.SetReadBuffer. 0 means the default, 8 MB.
	ReadBuffer int
	// Memory bounds how many bytes all SDP connections of this process together may promise to
	// their peers: for data that is unread here, and for shm's large rings. It belongs to the
	// process: every Dial or Listen whose Config sets it changes it for all connections. Each
	// connection has at least 64 KB, and at most an eighth of Memory. 0 means what was set
	// before, or SDP_MEMORY ("512M", with K, M or G for powers of 1024). If that is not set it
	// is a sixteenth of the machine's memory, or of the control group's limit, between 16 MB
	// and 4 GB.
	Memory int64

	// BusyPoll is how long a Read, or another call that waits for the peer, polls before it
	// parks, like SO_BUSY_POLL of a socket. At most 1 s is used, and a negative value switches
	// polling off. Polling ends early if the netpoller has not run for 50 µs because every P
	// of the process has work. Dial and Accept ignore it. 0 means SDP_BUSY_POLL, which is in
	// microseconds; there 0 switches polling off. If that is not set, calls poll for as long
	// as it has paid off lately and the process can afford it: see docs/concurrency.md. Linux
	// only.
	BusyPoll time.Duration

	// Logger receives, at debug level, why a connection does not use SDP or a device, and why
	// one was not set up, and as a warning that ShmDir cannot be used. By default nothing is logged.
	Logger *slog.Logger
}

// filled returns c with defaults in place of zero values, except for Devices; see the method
// devices.
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

// ourHello is what this end says of itself, whether it dials or listens, if the peer may have
// readBuffer bytes unread and the budget allows them. 0 means the default.
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
