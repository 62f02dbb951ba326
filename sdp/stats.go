package sdp

import (
	"sync/atomic"

	"github.com/gosdp/gosdp/internal/budget"
	"github.com/gosdp/gosdp/internal/dump"
	"github.com/gosdp/gosdp/internal/handshake"
	"github.com/gosdp/gosdp/rdma"
	"github.com/gosdp/gosdp/wire"
)

// Counts counts messages and the bytes of the stream that they carried.
type Counts struct {
	Messages uint64
	Bytes    uint64
}

func (c *Counts) add(o Counts) {
	c.Messages += o.Messages
	c.Bytes += o.Bytes
}

// Traffic counts what connections have carried. The counters only grow.
//
// Sent returns the bytes that Writes have sent, and Received those that have arrived or, on TCP and shm,
// that Reads have returned.
type Traffic struct {
	// TCPSent and TCPReceived are bytes of the stream that went through TCP sockets, and ShmSent and
	// ShmReceived those that went through shared memory.
	TCPSent, TCPReceived, ShmSent, ShmReceived uint64
	Moves                                      uint64 // of connections to shared memory

	// BcopySent and BcopyReceived count the messages with payload. Few bytes per message mean
	// that the program's Writes are small.
	BcopySent, BcopyReceived Counts
	// ControlSent and ControlReceived count the messages without payload, which grant credit
	// or belong to zero copy. A busy connection has far fewer of them than messages with
	// payload.
	ControlSent, ControlReceived uint64
	// CreditStalls counts how often a Write waited because the peer had no free buffer. If it
	// grows, the peer's program reads more slowly than this one writes.
	CreditStalls uint64

	ZCopySent     uint64 // bytes of Writes that were sent without a copy
	ZCopyReceived uint64 // bytes of Reads that were received without a copy
	Advertised    uint64 // Writes and Reads, or parts of them, that were offered to the peer for zero copy
	// Cancels counts the offers that were withdrawn, because the peer did not use them in time
	// or the call ended. If it is not much smaller than Advertised, zero copy does not suit the
	// traffic: raise Config.ZCopyThreshold.
	Cancels     uint64
	SendSmSent  uint64 // offers of the peer that this end received as messages, because its Reads were small
	SendSmCame  uint64 // offers of this end that the peer received as messages
	ModeChanges uint64 // changes between the protocol's modes of zero copy, in both directions
}

// Sent returns how many bytes of the stream Writes have sent.
func (t *Traffic) Sent() uint64 { return t.TCPSent + t.ShmSent + t.BcopySent.Bytes + t.ZCopySent }

// Received returns how many bytes of the stream have arrived.
func (t *Traffic) Received() uint64 {
	return t.TCPReceived + t.ShmReceived + t.BcopyReceived.Bytes + t.ZCopyReceived
}

// tally is the part of Traffic that a connection counts itself. Guarded by conn.mu.
type tally struct {
	BcopySent, BcopyReceived                   Counts
	ControlSent, ControlReceived, CreditStalls uint64
}

func (t *Traffic) add(o Traffic) {
	t.TCPSent += o.TCPSent
	t.TCPReceived += o.TCPReceived
	t.ShmSent += o.ShmSent
	t.ShmReceived += o.ShmReceived
	t.Moves += o.Moves
	t.BcopySent.add(o.BcopySent)
	t.BcopyReceived.add(o.BcopyReceived)
	t.ControlSent += o.ControlSent
	t.ControlReceived += o.ControlReceived
	t.CreditStalls += o.CreditStalls
	t.ZCopySent += o.ZCopySent
	t.ZCopyReceived += o.ZCopyReceived
	t.Advertised += o.Advertised
	t.Cancels += o.Cancels
	t.SendSmSent += o.SendSmSent
	t.SendSmCame += o.SendSmCame
	t.ModeChanges += o.ModeChanges
}

// carriedLocked returns the connection's traffic.
func (c *conn) carriedLocked() Traffic {
	t := Traffic{
		BcopySent:       c.traffic.BcopySent,
		BcopyReceived:   c.traffic.BcopyReceived,
		ControlSent:     c.traffic.ControlSent,
		ControlReceived: c.traffic.ControlReceived,
		CreditStalls:    c.traffic.CreditStalls,
	}
	out, in := c.session.DirectCounts()
	t.ZCopySent, t.ZCopyReceived = out.Bytes, in.Bytes
	t.Advertised = out.Adverts + in.Adverts
	t.Cancels = out.Cancels + in.Cancels
	t.SendSmSent, t.SendSmCame = in.SendSm, out.SendSm
	t.ModeChanges = out.ModeChanges + in.ModeChanges
	return t
}

// ConnStats is a snapshot of one connection's state.
type ConnStats struct {
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

// stayed returns why a connection that could be in shared memory has never been there; "": it has.
func stayed(s ConnStats) string {
	if s.Moves > 0 || s.ShmReceived > 0 {
		return ""
	}
	return s.OnTCP
}

func (c *conn) stats() ConnStats {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.statsLocked()
}

func (c *conn) record() *record { return &c.recorded }

func (c *conn) dumped() *atomic.Pointer[dump.Stream] { return &c.dump }

func (c *conn) describe(info *ConnInfo) {
	c.mu.Lock()
	defer c.mu.Unlock()
	info.ConnStats = c.statsLocked()
	info.Closing = c.phase.closed()
	info.SendCredit = c.session.Credit()
	info.ReceiveCredit = c.session.PeerCredit()
}

func (c *conn) statsLocked() ConnStats {
	return ConnStats{
		Device:         c.device,
		Declined:       c.declined.Table(),
		Traffic:        c.carriedLocked(),
		Buffers:        c.session.Target(),
		BufferSize:     c.session.BufferSize(),
		PeerBufferSize: c.session.PeerBufferSize(),
		Unread:         c.session.Unread(),
	}
}

// Totals are the statistics of all SDP connections of this process.
type Totals struct {
	Open   int    // connections that are open now
	Opened uint64 // connections that have been opened so far
	// Closing is the number of closed connections that are still delivering what their Writes
	// have accepted; see WaitClosed. CloseResets counts those that were reset because there
	// were too many.
	Closing     int
	CloseResets uint64
	// Declined counts the devices that connections were allowed to use but do not use, for
	// the reasons in ConnStats.Declined.
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

// Stats returns the totals of this process. In a program that "sdp go" has built, they do not include
// package net's connections (docs/adoption.md). It is safe for concurrent use.
func Stats() Totals {
	t := openConns.totals()
	lingering.mu.Lock()
	defer lingering.mu.Unlock()
	t.Closing, t.CloseResets = len(lingering.conns), lingering.resets
	return t
}

func (o *connTable) totals() Totals {
	o.mu.Lock()
	t := Totals{
		Opened: o.opened, Declined: handshake.DeclinedTotal.Load(), Traffic: o.closed,
		Memory: budget.Process.Used(), MemoryLimit: budget.Process.Limit(),
	}
	t.Pinned = pinned()
	open := o.listLocked()
	o.mu.Unlock()
	for _, r := range open {
		var info ConnInfo
		r.carrier.describe(&info)
		t.add(info.Traffic)
		if !info.Closing {
			t.Open++
		}
	}
	return t
}

// pinned returns Totals.Pinned.
func pinned() (bytes map[string]int64) {
	for _, known := range wire.KnownDevices {
		d, _ := rdma.LookupDevice(known.Name)
		p, ok := d.(rdma.Pinner)
		if !ok {
			continue
		}
		for name, n := range p.Pinned() {
			if bytes == nil {
				bytes = make(map[string]int64)
			}
			bytes[name] += n
		}
	}
	return bytes
}
