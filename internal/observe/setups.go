package observe

import (
	"sync/atomic"

	"github.com/gosdp/gosdp/sdp/stats"
)

// plainDials and plainAccepts count connections of this process that are not of this library, and failedDials
// counts Dials that returned an error.
var (
	plainDials, plainAccepts plainCounts
	failedDials              atomic.Uint64
)

// Dialled counts a Dial that has returned.
func Dialled(e stats.Dial) {
	switch {
	case e.Err != nil:
		failedDials.Add(1)
	case e.Device == "":
		plainDials[e.Plain].Add(1)
	}
}

// PlainAccepted counts an Accept that has returned a connection that is not of this library.
func PlainAccepted(reason stats.PlainReason) { plainAccepts[reason].Add(1) }

// Setups returns statistics about the set-up of connections in this process.
func Setups() stats.Setups {
	return stats.Setups{
		Devices:      devices(),
		Plain:        plainDials.table(),
		PlainAccepts: plainAccepts.table(),
		Failed:       failedDials.Load(),
	}
}

// plainReasons is how many reasons there are.
const plainReasons = stats.PlainNoDevice + 1

// plainCounts counts plain connections by reason.
type plainCounts [plainReasons]atomic.Uint64

// table has 0 too: a monitor does not notice the first event of a new series.
func (p *plainCounts) table() map[stats.PlainReason]uint64 {
	t := make(map[stats.PlainReason]uint64, plainReasons)
	for reason := range p {
		t[stats.PlainReason(reason)] = p[reason].Load()
	}
	return t
}

// names returns the counts that are not 0 by the names of the reasons.
func (p *plainCounts) names() map[string]uint64 {
	t := make(map[string]uint64)
	for reason := range p {
		if n := p[reason].Load(); n > 0 {
			t[stats.PlainReason(reason).String()] = n
		}
	}
	return t
}

// devices counts the connections that were opened by the device with which they began.
func devices() map[string]uint64 {
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
