package sdp

import (
	"sync/atomic"

	"github.com/gosdp/gosdp/internal/budget"
	"github.com/gosdp/gosdp/internal/dump"
	"github.com/gosdp/gosdp/internal/handshake"
	"github.com/gosdp/gosdp/rdma"
	"github.com/gosdp/gosdp/sdp/stats"
	"github.com/gosdp/gosdp/wire"
)

// tally is the part of Traffic that a connection counts itself. Guarded by conn.mu.
type tally struct {
	BcopySent, BcopyReceived                   stats.Counts
	ControlSent, ControlReceived, CreditStalls uint64
}

// carriedLocked returns the connection's traffic.
func (c *conn) carriedLocked() stats.Traffic {
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

func (c *conn) stats() stats.Conn {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.statsLocked()
}

func (c *conn) record() *record { return &c.recorded }

func (c *conn) dumped() *atomic.Pointer[dump.Stream] { return &c.dump }

func (c *conn) describe(info *stats.OpenConn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	info.Conn = c.statsLocked()
	info.Closing = c.closed
	info.SendCredit = c.session.Credit()
	info.ReceiveCredit = c.session.PeerCredit()
}

func (c *conn) statsLocked() stats.Conn {
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

// Stats returns the totals of this process. In a program that "sdp go" has built, they do not include
// package net's connections (docs/adoption.md). It is safe for concurrent use.
func Stats() stats.Totals {
	t := openConns.totals()
	lingering.mu.Lock()
	defer lingering.mu.Unlock()
	t.Closing, t.CloseResets = len(lingering.conns), lingering.resets
	return t
}

func (o *connTable) totals() stats.Totals {
	o.mu.Lock()
	t := stats.Totals{
		Opened: o.opened, Declined: handshake.DeclinedTotal.Load(), Traffic: o.closed,
		Memory: budget.Process.Used(), MemoryLimit: budget.Process.Limit(),
	}
	t.Pinned = pinned()
	open := o.listLocked()
	o.mu.Unlock()
	for _, r := range open {
		var info stats.OpenConn
		r.carrier.describe(&info)
		t.Add(info.Traffic)
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
