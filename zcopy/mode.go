package zcopy

import (
	"fmt"

	"github.com/gosdp/gosdp/wire"
)

// transition checks a change of mode (figure 26). The Source may change the mode in Combined
// and Pipelined mode, the Sink in Buffered mode.
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
	return fmt.Errorf("zcopy: §12: invalid mode change of the %s from %d to %d", who, from, to)
}

// How the modes are chosen. A Source follows hints of its peer that are repeated. Hints that
// Reads wait (REQ_PIPE) make it change to Pipelined mode. Advertisements of which nothing was
// fetched make it change back to Combined, and then to Buffered mode. The Sink leaves Buffered
// mode when enough more Reads could have been filled without a copy than could not. That
// number doubles each time.
const (
	hintsMatter  = 2 // REQ_PIPE in succession
	failsMatter  = 2 // advertisements in succession of which nothing was fetched
	waitsMatter  = 2 // SrcAvails in succession that found a Read waiting
	returnAfter  = 8 // how many more Reads must be suitable than not, at first
	returnAtMost = 1 << 12
)
