package zcopy

import (
	"fmt"

	"github.com/gosdp/gosdp/wire"
)

// transition says who may make a direction go from one mode to another (figure
// 26): the Source is master in Combined and Pipelined mode, the Sink in Buffered
// mode.
func transition(from, to wire.Mode, bySource bool) error {
	switch {
	case bySource && from == wire.ModeCombined && to != wire.ModeCombined,
		bySource && from == wire.ModePipelined && to == wire.ModeCombined,
		!bySource && from == wire.ModeBuffered && to == wire.ModeCombined:
		return nil
	}
	who := "sink"
	if bySource {
		who = "source"
	}
	return fmt.Errorf("zcopy: §12: the %s cannot go from mode %d to %d", who, from, to)
}

// How the modes are chosen. A Source follows its peer's hints, and only when
// they repeat: hints that Reads wait (REQ_PIPE) make it go Pipelined, and
// advertisements of which nothing was fetched make it go back to Combined and
// on to Buffered. From there it is the Sink that comes back, when so many more
// Reads could have been filled without a copy than could not; the number doubles
// with each time that this turned out to be wrong.
const (
	hintsMatter  = 2 // REQ_PIPE in succession
	failsMatter  = 2 // advertisements in vain in succession
	waitsMatter  = 2 // SrcAvails in succession that found a Read waiting
	returnAfter  = 8 // how many more Reads suit than do not, at first
	returnAtMost = 1 << 12
)
