//go:build linux

package spin

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestParksNowAndThen: of waits that steps end, one parks before the runtime would interrupt the
// goroutine; of those that follow each other slowly, one in a few; and none of those that are many.
// A wait that was told to park and did not, because something arrived, counts as one that did.
func TestParksNowAndThen(t *testing.T) {
	const never = time.Duration(1<<63 - 1)
	for name, v := range map[string]struct {
		between, least, most time.Duration // between waits; from one that parks to the next
	}{
		"each 50 µs":    {50 * time.Microsecond, never, never},
		"each 200 µs":   {200 * time.Microsecond, awakeTime, awakeTime + time.Millisecond},
		"each ms":       {time.Millisecond, awakeTime, 9 * time.Millisecond},
		"each 10 ms":    {10 * time.Millisecond, 70 * time.Millisecond, 100 * time.Millisecond},
		"each 1,000 ms": {time.Second, 7 * time.Second, 10 * time.Second},
	} {
		for _, parks := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, parks: %t", name, parks), func(t *testing.T) {
				rich(t)
				w := Waiter{score: most}
				last := Clock()
				process.awake.since, process.awake.waits = last, 0
				process.awake.last.Store(0)
				told := 0
				for range 1000 {
					w.score, process.left, process.filled = most, saved, Clock()
					looked := 0
					if !w.Spin(Looks, func() bool { looked++; return looked > Looks+3 }, func() bool { return true }) {
						now := Clock()
						require.Greater(t, now-last, v.least)
						require.Less(t, now-last, v.most)
						if parks {
							w.Parked(now, now, now)
						}
						last = now
						told++
					}
					pass(v.between)
				}
				assert.Equal(t, v.least < never, told > 10, "%d of 1,000", told)
			})
		}
	}
}

// TestOthersPark: a wait of another goroutine that parks is enough.
func TestOthersPark(t *testing.T) {
	quiet(t)
	var a awake
	now := time.Hour
	for range 1000 {
		now += time.Millisecond
		if now%(4*time.Millisecond) == 0 {
			a.parked(now)
		}
		require.False(t, a.overdue(now))
	}
}
