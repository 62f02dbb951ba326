package listener

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestTransitions walks every event in every state. Those that are not listed are refused.
func TestTransitions(t *testing.T) {
	permitted := map[state]map[event]state{
		waiting:     {enter: accepting, exit: cut, shut: closing},
		accepting:   {interrupt: interrupted, leave: waiting, shut: closing},
		interrupted: {leave: returned, shut: closing},
		returned:    {enter: accepting, exit: cut, shut: closing},
		cut:         {shut: draining},
		closing:     {leave: closing, exit: draining, shut: closing},
		draining:    {shut: draining, finish: ended},
		ended:       {shut: ended},
	}
	for s := waiting; s < states; s++ {
		for e := event(0); e < events; e++ {
			want, ok := permitted[s][e]
			if !ok {
				assert.Panics(t, func() { s.after(e) }, "%v while %v", e, s)
				continue
			}
			assert.Equal(t, want, s.after(e), "%v while %v", e, s)
		}
	}
}

// TestEveryPathEnds: from every state Close leads to the end, and no event leads back from a closed listener.
func TestEveryPathEnds(t *testing.T) {
	for s := waiting; s < states; s++ {
		for e, next := range transitions[s] {
			if s.closed() && next != 0 {
				assert.True(t, next.closed(), "%v while %v", event(e), s)
			}
			if s.stopped() && next != 0 {
				assert.True(t, next.stopped(), "%v while %v", event(e), s)
			}
		}
		at := s.after(shut)
		for _, e := range []event{leave, exit, finish} {
			if next := transitions[at][e]; next != 0 {
				at = next
			}
		}
		assert.Equal(t, ended, at, "from %v", s)
	}
}
