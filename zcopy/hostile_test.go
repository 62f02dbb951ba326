package zcopy

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/gosdp/gosdp/wire"
)

// hostile is a peer that sends what it likes, to an end that keeps the rules,
// until a message is refused.
type hostile struct {
	r      *rand.Rand
	s      Source
	k      Sink
	rest   int // of the Write
	flying []int
	mseq   uint32
	open   bool // payload is going
	going  int  // bytes of it
	credit int  // messages that the peer may send while it is
}

const credit = 8

func (h *hostile) size() int {
	return [...]int{0, 1, 63, 64, 65, 100, 101, 436, 500, 1000, 1 << 31}[h.r.IntN(11)]
}

func (h *hostile) advert() wire.Advert {
	return wire.Advert{
		Len: uint32(max(h.size(), 1)), STag: uint32(h.r.IntN(4)), VA: h.r.Uint64(),
		NonDiscards: uint32(h.r.IntN(5) - 2),
	}
}

// message is one of the peer's: nearly always one that it could send by the rules,
// as far as its kind goes.
func (h *hostile) message() error {
	ack := h.mseq - uint32(h.r.IntN(3))
	wild := h.r.IntN(50) == 0
	pipelined := h.k.Mode() == wire.ModePipelined
	switch h.r.IntN(14) {
	case 0, 1:
		if len(h.s.offers) > 0 && !wild {
			return h.s.RdCompl(h.r.IntN(h.s.offers[0].left+1), 0, h.r.IntN(2) == 0)
		} else if wild {
			return h.s.RdCompl(h.size(), uint32(h.r.IntN(4)), true)
		}
	case 2:
		if len(h.s.offers) > 0 || wild {
			return h.s.SendSm(ack)
		}
	case 3, 4:
		a := h.advert()
		if !wild {
			a.Len = max(a.Len, buffer+1)
			a.NonDiscards = h.s.potential - uint32(h.r.IntN(2))
		}
		if h.s.Mode() == wire.ModePipelined && len(h.s.sinks) < 2 || wild {
			return h.s.SinkAvail(a, ack, buffer)
		}
	case 5:
		h.s.SinkAvailCancel()
	case 6:
		if h.s.Mode() == wire.ModeBuffered || wild {
			return h.s.ModeChange(wire.ModeCombined)
		}
	case 7, 8:
		a, n := h.advert(), 0
		if a.Len = max(a.Len, 2); !pipelined {
			n = 1 + h.r.IntN(int(min(a.Len-1, 100)))
		}
		if (pipelined && len(h.k.held) < 3 || len(h.k.held)+h.k.asked == 0) && !h.k.cancel && h.k.Mode() != wire.ModeBuffered || wild {
			err := h.k.SrcAvail(a, n)
			if err == nil && n > 0 {
				h.k.Payload(n, false)
			}
			return err
		}
	case 9, 10:
		h.k.Payload(1+h.r.IntN(200), true)
	case 11:
		if !h.k.cancel || wild {
			return h.k.SrcAvailCancel(h.r.Uint32())
		}
	case 12:
		switch {
		case h.k.state == sinkOpen && h.k.cancelling && h.r.IntN(2) == 0:
			return h.k.CancelAck()
		case h.k.state == sinkOpen:
			return h.k.WrCompl(h.r.IntN(501), 0)
		case wild:
			return h.k.WrCompl(h.size(), uint32(h.r.IntN(4)))
		}
	case 13:
		switch {
		case wild:
			return h.k.ModeChange(wire.Mode(h.r.IntN(3)))
		case pipelined && h.r.IntN(3) == 0:
			return h.k.ModeChange(wire.ModeCombined)
		case h.k.Mode() == wire.ModeCombined:
			return h.k.ModeChange(wire.ModePipelined)
		}
	}
	return nil
}

// ours is what this end does by the rules.
func (h *hostile) ours() {
	if n := h.s.Moved(); n > 0 {
		h.rest -= n
	}
	for _, ok := h.s.Ended(); ok; _, ok = h.s.Ended() {
	}
	switch h.r.IntN(10) {
	case 0, 1:
		h.control()
	case 2, 3, 4:
		h.write()
	case 5:
		if n, _, _, ok := h.k.Fetch(1 + h.r.IntN(500)); ok {
			h.flying = append(h.flying, n)
		} else {
			h.k.Decline()
		}
	case 6:
		if len(h.flying) > 0 {
			h.k.Fetched(h.flying[0])
			h.flying = h.flying[1:]
		}
	case 7:
		h.k.Outcome()
		if h.k.MayOffer(500, buffer) {
			h.k.Offer(3, 5000, 500)
		}
		h.k.Reading(500, buffer)
	case 8:
		h.k.Withdraw()
		h.s.Withdraw()
	case 9:
		if h.r.IntN(20) == 0 {
			h.k.Refuse()
		}
	}
}

func (h *hostile) control() {
	if h.open {
		return
	}
	for _, half := range []interface {
		Due() (wire.Message, uint32, bool)
		Took(*wire.Message)
	}{&h.s, &h.k} {
		if m, _, ok := half.Due(); ok {
			h.mseq++
			m.MSeq = h.mseq
			half.Took(&m)
		}
	}
}

func (h *hostile) write() {
	if h.open {
		gone := h.r.IntN(2)
		h.s.Sent(gone, gone*h.going)
		h.rest -= gone * h.going
		h.open = false
		return
	}
	p := h.s.Next(h.rest, h.r.IntN(20) == 0)
	switch p.Step {
	case Done:
		h.s.Begin()
		h.rest = 100 + h.r.IntN(5000)
	case Copy:
		h.going = min(p.N, 10)
		h.s.Sending(1, h.going, false)
		h.open = true
	case Offer:
		h.mseq++
		if p.Ride > 0 {
			h.s.Sending(1, p.Ride, true)
			h.s.Sent(1, p.Ride)
			h.rest -= p.Ride
		}
		h.s.Offered(p, uint32(1+h.r.IntN(3)))
	case Fill:
		h.s.Filling(p)
		h.s.Filled(p.N)
		h.rest -= p.N
	}
}

// TestHostilePeer: nothing panics, no more is counted through than was written,
// and what is kept for a peer is bounded, whatever it sends.
func TestHostilePeer(t *testing.T) {
	longest := 0
	seeds := uint64(10_000)
	if testing.Short() {
		seeds = 2000
	}
	for seed := range seeds {
		h := hostile{r: rand.New(rand.NewPCG(seed, 0)), k: newSink(), s: newSource(), rest: 3000}
		if h.r.IntN(2) == 0 {
			h.s.Hint()
			h.s.Hint()
			h.control()
		}
		for i := range 500 {
			h.ours()
			if !h.open {
				h.credit = credit
			}
			if h.r.IntN(3) > 0 || h.credit == 0 {
				continue
			}
			h.credit--
			if h.message() != nil {
				break
			}
			longest = max(longest, i)
			if h.rest < 0 || len(h.s.sinks)+len(h.s.later) > 2+2*credit || len(h.s.offers) > 3 || len(h.s.ended) > 3 || len(h.k.held) > 3 {
				t.Fatalf("seed %d: %d bytes left, %d SinkAvails, %d SrcAvails of ours, %d STags, %d SrcAvails", seed,
					h.rest, len(h.s.sinks), len(h.s.offers), len(h.s.ended), len(h.k.held))
			}
		}
	}
	assert.Greater(t, longest, 400, "every run ends early")
}
