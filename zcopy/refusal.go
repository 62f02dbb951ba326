package zcopy

import (
	"errors"
	"fmt"

	"github.com/gosdp/gosdp/wire"
)

// Refusal is a sink that has each SrcAvail sent as Data instead (§9.2, §9.5.2).
// It keeps the mode of the peer's direction, and counts what is still to come
// for each advertisement, since the rules of the modes speak of it. The zero
// value is a direction in Combined mode. Unsafe for concurrent use.
type Refusal struct {
	mode       mode
	maxAdverts int
	rest       []uint32 // bytes still to come for each SrcAvail that was answered, oldest first
	due        int      // SendSm messages to send
}

// mode is a direction's flow control mode, with Combined as its zero value,
// which every direction starts in (§11).
type mode uint8

const (
	combined mode = iota
	buffered
	pipelined
)

// NewRefusal returns the sink of a connection whose Hello allowed maxAdverts
// advertisements.
func NewRefusal(maxAdverts int) Refusal { return Refusal{maxAdverts: maxAdverts} }

// SrcAvail takes in an advertisement of size bytes, with payload bytes that ride
// along. It returns an error if the mode forbids it (§11.2, §11.3).
func (r *Refusal) SrcAvail(size uint32, payload int) error {
	switch {
	case r.mode == buffered:
		return errors.New("zcopy: §11.1: SrcAvail in Buffered mode")
	case r.mode == combined && payload == 0:
		return errors.New("zcopy: §11.2: SrcAvail without payload in Combined mode")
	case r.mode == combined && len(r.rest) > 0:
		return errors.New("zcopy: §11.2: a second SrcAvail in Combined mode")
	case r.mode == pipelined && payload > 0:
		return errors.New("zcopy: §11.3: SrcAvail with payload in Pipelined mode")
	case len(r.rest) >= r.maxAdverts:
		return fmt.Errorf("zcopy: §6.2.1: more than %d advertisements", r.maxAdverts)
	}
	r.rest = append(r.rest, size-uint32(payload))
	r.due++
	return nil
}

// Data takes in n bytes of a Data message, which belong to the oldest
// advertisement that was answered, if there is one.
func (r *Refusal) Data(n int) {
	for n > 0 && len(r.rest) > 0 {
		k := min(uint32(n), r.rest[0])
		r.rest[0] -= k
		n -= int(k)
		if r.rest[0] == 0 {
			r.rest = append(r.rest[:0], r.rest[1:]...)
		}
	}
}

// ModeChange takes in the peer's change of its own direction (S = 0, §12). It
// returns an error if the transition is not the source's to make.
func (r *Refusal) ModeChange(to wire.Mode) error {
	from := r.mode
	switch {
	case from == combined && to == wire.ModeBuffered && len(r.rest) == 0:
		r.mode = buffered
	case from == combined && to == wire.ModePipelined:
		r.mode = pipelined
	case from == pipelined && to == wire.ModeCombined:
		r.mode = combined
	default:
		return fmt.Errorf("zcopy: §12: the source cannot go from mode %d to %d", from.wire(), to)
	}
	return nil
}

func (m mode) wire() wire.Mode {
	return [...]wire.Mode{combined: wire.ModeCombined, buffered: wire.ModeBuffered, pipelined: wire.ModePipelined}[m]
}

// Outstanding reports that an advertisement was answered and its data has not all
// come.
func (r *Refusal) Outstanding() bool { return len(r.rest) > 0 }

// Cancel takes in a SrcAvailCancel. Every SrcAvail was answered when it came, or
// is about to be: what was answered the source sends or not, as it has found the
// answer before or after its cancel, and of what was not one SendSm tells it all
// (§9.5.4).
func (r *Refusal) Cancel() {
	r.rest = r.rest[:0]
	r.due = min(r.due, 1)
}

// SendSm reports that a SendSm is to be sent.
func (r *Refusal) SendSm() bool { return r.due > 0 }

// Sent tells that a SendSm has been sent.
func (r *Refusal) Sent() { r.due-- }
