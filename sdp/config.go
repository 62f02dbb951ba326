package sdp

import (
	"log/slog"
	"net/netip"
	"time"

	"github.com/gosdp/gosdp/internal/policy"
)

// Config contains the options of SDP. A nil Config and the zero value of every field mean the
// defaults, which suit nearly every program. A field that is set takes precedence over the
// operator's rules, which are in a file that the environment variable SDP_CONFIG names; those over
// the environment, and the environment over the defaults: see docs/rules.md. Programs that run
// with more rights than their caller (set-user-ID, capabilities) ignore the environment. A Config
// may be shared, but must not be changed while it is in use.
type Config struct {
	// Devices lists the devices that may be used: "shm" between programs of one host, and
	// "verbs" and "iwarp" in the order of preference. Devices that this program or this machine
	// lacks are skipped. "tcp" alone switches SDP off, as does a list that is empty but not nil;
	// an unknown or repeated name is an error. If Devices is set, no rule "use" applies. The default
	// is the environment variable SDP_DEVICES. If that is not set, network "tcp" uses "shm",
	// and "verbs" with the peers of Probe from an address on RDMA hardware. Network "sdp" uses
	// all devices.
	Devices []string
	// Probe lists the addresses that Dial on network "tcp" may ask whether they speak SDP over
	// RDMA: Dial sends them a Request. A listener on "tcp" waits for clients from there to ask.
	// The default is the environment variable SDP_PEERS, such as "10.0.0.0/8,fd00::/8", and if
	// that is not set there are none: nothing is sent that the program has not written. Probe
	// does not matter for shared memory.
	Probe []netip.Prefix

	// ReplyTimeout is how long Dial waits for a Reply, or on network "sdp" for a peer to be met in shared memory. On
	// network "tcp" that is at most a third of the Dial's remaining time, and by default 1 s. On network "sdp" the
	// default is the Dial's own time, or 2 min if it has no limit.
	ReplyTimeout time.Duration
	// HandshakeTimeout is how long a listener waits for the first bytes of a client that may
	// speak SDP, and how long the whole set-up of a connection may take, except that a client
	// always has 2 s after the Reply. The default is that of SDP_HANDSHAKE_TIMEOUT, such as "2s", and
	// if that is not set 5 s.
	HandshakeTimeout time.Duration
	// StepUpTimeout is how long Dial may take to open a channel of verbs beside the TCP
	// connection. After that it does not use one. A listener waits as long for the client's
	// decision, but at least 2 s. The default is 500 ms.
	StepUpTimeout time.Duration
	// StepUpThroughProxies makes a listener open such a channel even if the client sees other
	// addresses of the TCP connection than the listener does. The channel bypasses the proxy
	// between them.
	StepUpThroughProxies bool
	// PeerUIDs lists the users, besides the program's own, whose programs may share memory
	// with it. Both ends must allow it. The default is what the operator's rules say (statement
	// "share"), or else the environment variable SDP_PEER_UIDS, such as "33,1000".
	PeerUIDs []int
	// ShmDir is a directory that containers of one host share. If two programs in different
	// network namespaces have both mounted it, their connections may move to shared memory. Who
	// may write to the directory can act as an end of these connections, as with any Unix socket
	// that lies in it. It must be owned by root or the program's user, and must not be writable
	// by every user unless it is sticky. The default is the environment variable SDP_SHM_DIR,
	// and if that is not set there is none. A directory that cannot be used is reported to
	// Logger, and ignored; without a Logger, that of SDP_SHM_DIR is reported on standard error. See
	// docs/containers.md.
	ShmDir string
	// PlainTTL is how long Dial remembers that an address on another host speaks plain TCP,
	// after it has answered in another protocol or closed the connection. An address that did
	// not answer is remembered for at most 5 s. Dial does not ask an address that it remembers.
	// The default is 1 min.
	PlainTTL time.Duration

	// CRC makes iwarp use a CRC between two programs on one host too. Between hosts it always
	// does.
	CRC bool

	// ZCopyThreshold is the length in bytes up to which a Write is copied. A longer one is
	// advertised for the peer to fetch by RDMA, or written into memory that the peer has
	// advertised. 0 means SDP_ZCOPY_THRESHOLD, and if that is not set the device's own rule.
	// If it is negative everything is copied, in both directions.
	ZCopyThreshold int

	// ReadBuffer limits approximately how many bytes from the peer may be unread at this end;
	// see [Conn.SetReadBuffer]. 0 means the default, 8 MB. It has no effect on TCP and shm.
	ReadBuffer int

	// BusyPoll is how long a Read, or another call that waits for the peer, polls before it
	// parks, like the socket option SO_BUSY_POLL. A longer time than 1 s counts as 1 s, and a
	// negative one disables polling. Polling ends early if the runtime has not polled the
	// network for 50 µs because all its processors are busy. Dial and Accept ignore BusyPoll.
	// 0 means the value of SDP_BUSY_POLL, such as "50us", where 0 disables polling. If that is
	// not set, calls poll while that shortens their waits and the process can afford it; see
	// docs/concurrency.md. BusyPoll has an effect only on Linux, and over RDMA.
	BusyPoll time.Duration

	// Logger receives, at debug level, when a connection comes up and ends, and why one does not
	// use SDP or a device, or was not set up; as information, that a device cannot be used; and
	// as a warning, that a peer broke the protocol, or that ShmDir, the status, a dump or the
	// file of rules cannot be used. Information and warnings come at most once a minute for each
	// cause. docs/operations.md has a list. By default nothing is logged.
	Logger *slog.Logger
}

// SetMemoryLimit limits how many bytes all connections of this process together may take, for shared memory and for
// what their peers may send before it is read here. It returns the limit before. A connection for which there is no
// room is plain TCP, or fails on network "sdp"; one over RDMA has at most an eighth.
//
// 0 restores the value of SDP_MEMORY, such as "512M", or if that is not set the default: a sixteenth of the
// machine's memory or of the control group's limit, between 1 MB and 4 GB. A negative limit changes nothing.
func SetMemoryLimit(bytes int64) (previous int64) { return policy.SetMemoryLimit(bytes) }

// options returns c as package policy has it.
func (c *Config) options() *policy.Options { return (*policy.Options)(c) }
