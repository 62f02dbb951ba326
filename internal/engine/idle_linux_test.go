package engine

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/gosdp/gosdp/internal/ticker"
)

// TestRestingConnectionBecomesActive: the monitor visits it at the next tick, and not when it visits the
// others that rest, or the peer would have to wait for a background poller until then. Without activity
// it does not: a Read whose deadline passes now and then costs no visits.
func TestRestingConnectionBecomesActive(t *testing.T) {
	const later = 1000
	for name, v := range map[string]struct {
		ticks  int32
		active bool
		next   int64
	}{
		"active":           {restTicks, true, 0},
		"for long":         {2*idleTicks - 1, true, 0},
		"idle":             {restTicks, false, later},
		"it does not rest": {restTicks - 1, true, later},
	} {
		c := &Conn{idle: idleState{enabled: true, listed: true, ticks: v.ticks}}
		m := &monitor{conns: map[*Conn]int64{c: later}, now: 7, next: later, ticker: ticker.New()}
		defer m.ticker.Stop()
		if v.active {
			c.poll.activity++
		}
		for range 2 {
			m.watchLocked(c)
			assert.Equal(t, v.next, m.conns[c], name)
			assert.Equal(t, v.next != later, m.soon, name)
		}
		assert.NotEqual(t, c.idle.ticks >= restTicks, v.active, "%s: the next calls cost nothing", name)
	}
}
