package engine

import (
	"sync/atomic"

	"github.com/gosdp/gosdp/internal/dump"
	"github.com/gosdp/gosdp/internal/observe"
	"github.com/gosdp/gosdp/sdp/stats"
)

// tally is the part of Traffic that a connection counts itself. Guarded by Conn.mu.
type tally struct {
	BcopySent, BcopyReceived                   stats.Counts
	ControlSent, ControlReceived, CreditStalls uint64
}

// carriedLocked returns the connection's traffic.
func (c *Conn) carriedLocked() stats.Traffic {
	t := stats.Traffic{
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

// Stats returns the connection's statistics.
func (c *Conn) Stats() stats.Conn {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.statsLocked()
}

// Record returns the connection's place in the table of open connections.
func (c *Conn) Record() *observe.Record { return &c.recorded }

// Dumped has the dump's stream.
func (c *Conn) Dumped() *atomic.Pointer[dump.Stream] { return &c.dump }

// Describe fills in what the Record does not have.
func (c *Conn) Describe(info *stats.OpenConn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	info.Conn = c.statsLocked()
	info.Closing = c.phase.closed()
	info.SendCredit = c.session.Credit()
	info.ReceiveCredit = c.session.PeerCredit()
}

func (c *Conn) statsLocked() stats.Conn {
	return stats.Conn{
		Device:         c.device,
		Declined:       c.declined.Table(),
		Traffic:        c.carriedLocked(),
		Buffers:        c.session.Target(),
		BufferSize:     c.session.BufferSize(),
		PeerBufferSize: c.session.PeerBufferSize(),
		Unread:         c.session.Unread(),
	}
}
