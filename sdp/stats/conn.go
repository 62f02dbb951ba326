package stats

import (
	"net"
	"time"
)

// Conn is a snapshot of one connection's state.
type Conn struct {
	Device string
	// OnTCP says why a connection that could be in shared memory is on TCP; "": it is not on TCP.
	OnTCP string
	// Declined maps the name of each device that is not used to the reason.
	Declined map[string]string
	Traffic
	Buffers        int // receive buffers of this end
	BufferSize     int // bytes in each of them
	PeerBufferSize int // bytes in each receive buffer of the peer
	Unread         int // bytes that have arrived and have not been read
}

// Stayed returns why a connection that could be in shared memory has never been there; "": it has.
func (s Conn) Stayed() string {
	if s.Moves > 0 || s.ShmReceived > 0 {
		return ""
	}
	return s.OnTCP
}

// OpenConn describes one open connection of this process.
type OpenConn struct {
	ID            uint64 // numbered from 1 in order of opening
	Local, Remote net.Addr
	Dialled       bool // this end dialled
	Closing       bool // closed, and still delivering data
	Opened        time.Time
	SendCredit    int // messages that this end may send now
	ReceiveCredit int // messages that the peer may send now
	Conn
}

// Totals are the statistics of all connections of package sdp in this process.
type Totals struct {
	Open   int    // connections that are open now
	Opened uint64 // connections that have been opened so far
	// Closing is the number of closed connections that are still delivering what their Writes
	// have accepted; see WaitClosed. CloseResets counts those that were reset because there
	// were too many.
	Closing     int
	CloseResets uint64
	// Declined counts the devices that connections were allowed to use but do not use, for
	// the reasons in Conn.Declined.
	Declined uint64
	// Memory is how many bytes all connections have promised to their peers, used or not,
	// including shm's large rings. MemoryLimit is how many they may promise, not counting the
	// minimum that each connection gets.
	Memory, MemoryLimit int64
	// Pinned is how many bytes this process has locked in memory for RDMA, by the name of the
	// hardware's device. It is nil if there are none.
	Pinned map[string]int64
	Traffic
}
