// Package timing has the durations that depend on each other, whichever packages use them. Its test checks these relations.
// A duration that depends on no other one stays where it is used.
package timing

import "time"

// Meetings in shared memory.
const (
	// An end that only waits for a meeting takes the first step after MeetFirst, and then others at intervals that double
	// up to MeetMost.
	MeetFirst = 20 * time.Microsecond
	MeetMost  = 5 * time.Millisecond
	// Listen is how long a dialler listens at least: the ends' scores differ by what is in the sockets.
	Listen = 20 * time.Millisecond
	// MeetTime is how long a meeting lasts to which the peer does not come.
	MeetTime = time.Second
	// Refused is how long Conn.Meet continues after it has turned a process away, which need not have been the peer.
	Refused = time.Second
	// A young connection that was accepted looks for a dialler that says nothing, for the first time after YoungFirst and
	// for the last time after YoungLast. While a meeting lasts it takes a step every YoungStep.
	YoungFirst = 10 * time.Millisecond
	YoungLast  = time.Second
	YoungStep  = time.Millisecond
)

// Connections in shared memory.
const (
	// Visit is the interval at which connections are visited that have a meeting or a segment.
	Visit = 160 * time.Millisecond
	// Idle is how long a connection may carry nothing before it comes home.
	Idle = time.Second
	// Home is how long Control waits for a connection to come home, and File how long File does: a peer that is only busy
	// must not cost File the connection, and Control can do without.
	Home = time.Second
	File = 10 * time.Second
)

// The client's half of a handshake. Reply, StepUp and PlainTTL are defaults of sdp.Config.
const (
	// Reply is how long a client waits for the server's Reply.
	Reply = time.Second
	// LastLook is how long it then reads what has arrived in time.
	LastLook = 50 * time.Millisecond
	// Demand is how long a Dial that demands SDP and has no deadline waits for a peer that says nothing: about as long as
	// the kernel waits for an answer to connect.
	Demand = 2 * time.Minute
	// StepUp is how long opening the channel of another device may take.
	StepUp = 500 * time.Millisecond
	// Decision is the least time that a client has, after the Reply, to decide, and then for the channel on which it has
	// decided. A client that has taken longer since its Request decides for plain TCP.
	Decision = 2 * time.Second
	// PlainTTL is how long an address is remembered as plain TCP, and Silence how long if it said nothing.
	PlainTTL = time.Minute
	Silence  = 5 * time.Second
	// Watch is how long a connection is observed that is plain TCP because its address is remembered: a server that speaks
	// only SDP closes it. Closed is the interval at which that looks whether the program has closed it.
	Watch  = 6 * time.Second
	Closed = 250 * time.Millisecond
)

// The server's half, and the listener.
const (
	// Handshake is how long a handshake may take, unless sdp.Config or the environment says otherwise.
	Handshake = 5 * time.Second
	// Slice is how long a server waits for a channel at a time. If the process was stopped, the present slice is over when
	// it continues, before the device has reported what arrived meanwhile.
	Slice = 100 * time.Millisecond
	// If others need its slot, a handshake keeps it for Silent until the client has sent a Request, and for Patience after
	// that. The first is enough for bytes in flight, and the second for an honest client of a machine that 3,000 others
	// dial. SlotCheck is how often a connection without a slot looks for such a handshake.
	Silent    = 100 * time.Millisecond
	Patience  = 2 * time.Second
	SlotCheck = time.Millisecond
	// Order is how long a connection waits for an earlier one that is in its handshake, so that Accept keeps the order of
	// arrival. After a wait in vain none waits for OrderPause.
	Order      = 2 * time.Millisecond
	OrderPause = 100 * time.Millisecond
	// AcceptGrace is how long connections that are set up wait for an Accept after Close, and CloseGrace how long
	// handshakes may still take.
	AcceptGrace = 200 * time.Millisecond
	CloseGrace  = time.Second
)
