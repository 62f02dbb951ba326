package observe

import (
	"sync/atomic"

	"github.com/gosdp/gosdp/sdp/stats"
)

// PlainDials and PlainAccepts count connections of this process that are not of this library.
var PlainDials, PlainAccepts PlainCounts

// plainReasons is how many reasons there are.
const plainReasons = stats.PlainNoDevice + 1

// PlainCounts counts plain connections by reason.
type PlainCounts [plainReasons]atomic.Uint64

// Add counts one.
func (p *PlainCounts) Add(reason stats.PlainReason) { p[reason].Add(1) }

// Table has 0 too: a monitor does not notice the first event of a new series.
func (p *PlainCounts) Table() map[stats.PlainReason]uint64 {
	t := make(map[stats.PlainReason]uint64, plainReasons)
	for reason := range p {
		t[stats.PlainReason(reason)] = p[reason].Load()
	}
	return t
}

// names returns the counts that are not 0 by the names of the reasons.
func (p *PlainCounts) names() map[string]uint64 {
	t := make(map[string]uint64)
	for reason := range p {
		if n := p[reason].Load(); n > 0 {
			t[stats.PlainReason(reason).String()] = n
		}
	}
	return t
}

// Devices counts the connections that were opened by the device with which they began.
func Devices() map[string]uint64 {
	openConns.mu.Lock()
	defer openConns.mu.Unlock()
	return openConns.byDevice.table()
}

// deviceCounts counts by device. There are few devices, so a search costs less than a map.
type deviceCounts []deviceCount

type deviceCount struct {
	device string
	n      uint64
}

func (d *deviceCounts) add(device string) {
	for i := range *d {
		if (*d)[i].device == device {
			(*d)[i].n++
			return
		}
	}
	*d = append(*d, deviceCount{device, 1})
}

func (d deviceCounts) table() map[string]uint64 {
	t := make(map[string]uint64, len(d))
	for _, one := range d {
		t[one.device] = one.n
	}
	return t
}
