package sdp

import (
	"sync/atomic"

	"github.com/gosdp/gosdp/internal/observe"
	"github.com/gosdp/gosdp/sdp/stats"
)

// SetupStats returns statistics about the set-up of connections in this process. It is safe
// for concurrent use.
func SetupStats() stats.Setups {
	s := stats.Setups{
		Plain:        observe.PlainDials.Table(),
		PlainAccepts: observe.PlainAccepts.Table(),
		Failed:       setups.failed.Load(),
	}
	s.Devices = observe.Devices()
	return s
}

// setups are those of this process.
var setups setupCounter

type setupCounter struct {
	failed atomic.Uint64
}

// count counts a Dial.
func (s *setupCounter) count(e stats.Dial) {
	switch {
	case e.Err != nil:
		s.failed.Add(1)
	case e.Device == "":
		observe.PlainDials.Add(e.Plain)
	}
}
