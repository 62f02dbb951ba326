package observe

import (
	"sync/atomic"

	"github.com/gosdp/gosdp/internal/budget"
	"github.com/gosdp/gosdp/internal/handshake"
	"github.com/gosdp/gosdp/rdma"
	"github.com/gosdp/gosdp/sdp/stats"
	"github.com/gosdp/gosdp/wire"
)

// Closing and CloseResets are those of [stats.Totals].
var (
	Closing     atomic.Int64
	CloseResets atomic.Uint64
)

// Totals returns the statistics of this process.
func Totals() stats.Totals { return openConns.totals() }

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
		r.conn.Describe(&info)
		t.Add(info.Traffic)
		if !info.Closing {
			t.Open++
		}
	}
	t.Closing, t.CloseResets = int(Closing.Load()), CloseResets.Load()
	return t
}

// pinned returns Totals.Pinned.
func pinned() (bytes map[string]int64) {
	for _, known := range wire.KnownDevices {
		d, ok := rdma.LookupDevice(known.Name)
		if !ok {
			continue
		}
		for name, n := range d.Pinned() {
			if bytes == nil {
				bytes = make(map[string]int64)
			}
			bytes[name] += n
		}
	}
	return bytes
}
