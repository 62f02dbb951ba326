package budget

import (
	"math"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestTakeStopsAtTheLimit(t *testing.T) {
	var b Budget
	b.SetLimit(100)
	assert.Equal(t, 12, b.Clip(100))
	assert.Equal(t, 11, b.Clip(11))
	assert.True(t, b.Allows(12))
	assert.False(t, b.Allows(13))
	assert.True(t, b.TakeSpare(50))
	assert.False(t, b.TakeSpare(1), "TakeSpare leaves half of the budget free")
	assert.True(t, b.Take(50))
	assert.False(t, b.Take(1))
	b.Charge(30)
	assert.EqualValues(t, 130, b.Used(), "Charge ignores the limit")
	b.Give(80)
	assert.True(t, b.Take(50))
	assert.False(t, b.Take(1))
	b.Give(100)
	assert.Zero(t, b.Used())
	assert.Panics(t, func() { b.Give(1) })
}

func TestZeroValueHasTheDefault(t *testing.T) {
	var b Budget
	assert.Equal(t, Default(), b.Limit())
	b.SetLimit(5)
	b.SetLimit(0)
	assert.Equal(t, Default(), b.Limit())
	b.SetLimit(math.MaxInt64)
	assert.Equal(t, math.MaxInt32, b.Clip(math.MaxInt32))
}

// TestDefaultThatIsNotKnown: twice the least one is assumed until then, unless more is needed; a
// limit that was set counts at once.
func TestDefaultThatIsNotKnown(t *testing.T) {
	defer func(d func() int64, k func() bool) { Default, known = d, k }(Default, known)
	asked, found, is := 0, 0, false
	Default = func() int64 { found++; return minLimit }
	known = func() bool { asked++; return is }
	var b Budget
	assert.True(t, b.Allows(minLimit/shares))
	assert.Equal(t, 1000, b.Clip(1000))
	assert.True(t, b.TakeSpare(minLimit/2))
	assert.False(t, b.Tight())
	assert.True(t, b.Take(minLimit/2))
	assert.Zero(t, asked, "the least default is enough")
	assert.True(t, b.Allows(2*minLimit/shares))
	assert.True(t, b.Take(minLimit))
	assert.Equal(t, 2, asked)
	assert.Zero(t, found)
	assert.False(t, b.Take(1), "more than is assumed")
	assert.Equal(t, 1, found)
	is = true
	assert.False(t, b.Allows(2*minLimit/shares))
	assert.Equal(t, minLimit/shares, b.Clip(minLimit))
	assert.True(t, b.Tight())
	b.SetLimit(1000)
	assert.False(t, b.Allows(126))
}

// TestManyTake takes from many goroutines concurrently; the limit must hold.
func TestManyTake(t *testing.T) {
	var b Budget
	b.SetLimit(1000)
	var takers sync.WaitGroup
	for range 8 {
		takers.Go(func() {
			for range 10_000 {
				if b.Take(300) {
					if used := b.Used(); used > 1000 {
						t.Errorf("%d bytes are in use", used)
					}
					b.Give(300)
				}
			}
		})
	}
	takers.Wait()
	assert.Zero(t, b.Used())
}

func TestShareOfTheMachine(t *testing.T) {
	for _, v := range []struct{ machine, group, want int64 }{
		{16 << 30, 0, 1 << 30},
		{16 << 30, 1 << 30, 64 << 20},
		{1 << 30, 16 << 30, 64 << 20}, // a group's limit may exceed the machine's memory
		{64 << 20, 0, 16 << 20},
		{1 << 40, 0, 4 << 30},
		{0, 0, 64 << 20},
		{0, 512 << 20, 32 << 20},
	} {
		assert.Equal(t, v.want, share(v.machine, v.group), "%+v", v)
	}
}
