package sdp

import (
	"log/slog"
	"net/netip"
	"time"

	"github.com/gosdp/gosdp/internal/policy"
)

// Config contains the options of SDP. A nil Config and the zero value of every field mean the
// defaults, which suit nearly every program. A field that is set takes precedence over the
// operator's rules (SDP_CONFIG, docs/rules.md), those over the environment, and the environment over the
// defaults. Programs that run with more rights than their caller (set-user-ID, capabilities) ignore the
// environment. A Config may be shared, but must not be changed while it is in use.
type Config struct {
	// Devices lists the devices that may be used: "shm" between programs of one host, and
	// "verbs" and "iwarp" in the order of preference, or "tcp" alone, which switches SDP off. Devices that
	// this program or this machine lacks are skipped; an unknown or repeated name is an error. If Devices
	// is not empty, no rule "use" applies. The default, if it is empty, is SDP_DEVICES. If that is not set, network "tcp" uses
	// "shm", and "verbs" with the peers of Probe from an address on RDMA hardware. Network "sdp" uses all.
	Devices []string
	// Probe lists the addresses that may be asked on network "tcp" whether they speak SDP over RDMA: Dial
	// sends them a Request, and a listener waits for one from there. It does not matter for shared
	// memory. The default, if it is nil, is SDP_PEERS, such as "10.0.0.0/8,fd00::/8", and if that is not set there are none.
	Probe []netip.Prefix

	// ReplyTimeout is how long Dial waits for a Reply, or on network "sdp" for a peer to be met in shared memory.
	// The default is 1 s on network "tcp", but at most a third of the Dial's remaining time, and on network
	// "sdp" the Dial's own time, or 2 min if it has no limit.
	ReplyTimeout time.Duration
	// HandshakeTimeout is how long a listener waits for the first bytes of a client that may speak SDP, and
	// how long the set-up of a connection may take, although a client always has 2 s after the Reply.
	// The default is SDP_HANDSHAKE_TIMEOUT, such as "2s", and if that is not set 5 s.
	HandshakeTimeout time.Duration
	// StepUpTimeout is how long Dial may take to open a channel of verbs beside the TCP connection, and a
	// listener waits for the client's decision, but at least 2 s. The default is 500 ms.
	StepUpTimeout time.Duration
	// StepUpThroughProxies makes a listener open such a channel even if the client sees other addresses of
	// the TCP connection than the listener does. The channel bypasses the proxy between them.
	StepUpThroughProxies bool
	// PeerUIDs lists the users, besides the program's own, whose programs may share memory with it. Both
	// ends must allow it. The default, if it is nil, is what the operator's rules say (statement
	// "share"), or else SDP_PEER_UIDS, such as "33,1000".
	PeerUIDs []int
	// ShmDir is a directory that containers of one host share. Programs in different network namespaces
	// that have both mounted it can share memory, and whoever may write to it can act as one of them. It must
	// be owned by root or the program's user, and must not be writable by every user unless it is sticky.
	// One that cannot be used is reported and ignored. The default is SDP_SHM_DIR, and if that is not set
	// there is none. See docs/containers.md.
	ShmDir string
	// PlainTTL is how long Dial remembers, and does not ask, an address on another host that has shown that it
	// speaks plain TCP. One that did not answer is remembered for at most 5 s. The default is 1 min.
	PlainTTL time.Duration

	// CRC makes iwarp use a CRC between two programs on one host too. Between hosts it always does.
	CRC bool
	// ZCopyThreshold is the length in bytes up to which a Write over RDMA is copied. If it is negative
	// everything is, in both directions. 0 means SDP_ZCOPY_THRESHOLD, and if that is not set the device's own rule.
	ZCopyThreshold int
	// ReadBuffer limits approximately how many bytes may be unread at this end of a connection over RDMA;
	// see [Conn.SetReadBuffer]. 0 means 8 MB.
	ReadBuffer int
	// BusyPoll is how long a call that waits for the peer over RDMA polls before it parks, like the socket
	// option SO_BUSY_POLL. A longer time than 1 s counts as 1 s, and a negative one disables polling. 0 means
	// SDP_BUSY_POLL, such as "50us", and if that is not set, or 0, calls poll while that pays; see
	// docs/concurrency.md. BusyPoll has an effect only on Linux. Dial and Accept ignore it.
	BusyPoll time.Duration

	// Logger receives, at debug level, when a connection comes up and ends, and why one does not use SDP or a
	// device; as information, that a device cannot be used; and as a warning, that a peer broke the protocol,
	// or that something that was asked for cannot be used. docs/operations.md has a list. By default nothing is logged.
	Logger *slog.Logger
}

// SetMemoryLimit limits how many bytes all connections of this process together may take, for shared memory and for
// what their peers may send before it is read here, and returns the limit before. 0 restores the value of SDP_MEMORY,
// such as "512M", or if that is not set the default: a sixteenth of the machine's memory or of the control group's
// limit, between 1 MB and 4 GB. A negative limit changes nothing. Connections for which there is no room are plain TCP,
// or fail on network "sdp".
func SetMemoryLimit(bytes int64) (previous int64) { return policy.SetMemoryLimit(bytes) }

// options returns c as package policy has it.
func (c *Config) options() *policy.Options { return (*policy.Options)(c) }
