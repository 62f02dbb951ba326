package sdp

import (
	"sync/atomic"

	"github.com/gosdp/gosdp/sdp/stats"
)

// SetupStats returns statistics about the set-up of connections in this process. It is safe
// for concurrent use.
func SetupStats() stats.Setups {
	s := stats.Setups{
		Plain:        setups.plainDials.table(),
		PlainAccepts: setups.plainAccepts.table(),
		Failed:       setups.failed.Load(),
	}
	openConns.mu.Lock()
	s.Devices = openConns.byDevice.table()
	openConns.mu.Unlock()
	return s
}

// setups are those of this process.
var setups setupCounter

type setupCounter struct {
	plainDials, plainAccepts plainCounts
	failed                   atomic.Uint64
}

// count counts a Dial.
func (s *setupCounter) count(e stats.Dial) {
	switch {
	case e.Err != nil:
		s.failed.Add(1)
	case e.Device == "":
		s.plainDials[e.Plain].Add(1)
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
