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

// TestDefaultIsNotLookedFor as long as the least one is enough.
func TestDefaultIsNotLookedFor(t *testing.T) {
	defer func(d func() int64) { Default = d }(Default)
	asked := 0
	Default = func() int64 { asked++; return 2 * minLimit }
	var b Budget
	assert.True(t, b.Allows(minLimit/shares))
	assert.Equal(t, 1000, b.Clip(1000))
	assert.True(t, b.TakeSpare(minLimit/2))
	assert.False(t, b.Tight())
	assert.True(t, b.Take(minLimit/2))
	assert.Zero(t, asked)
	assert.True(t, b.Take(minLimit))
	assert.Equal(t, 1, asked)
	assert.False(t, b.Take(1))
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
		{64 << 20, 0, 4 << 20},
		{16 << 30, 32 << 20, 2 << 20}, // a small container
		{16 << 30, 8 << 20, 1 << 20},
		{1 << 40, 0, 4 << 30},
		{0, 0, 64 << 20},
		{0, 512 << 20, 32 << 20},
	} {
		assert.Equal(t, v.want, share(v.machine, v.group), "%+v", v)
	}
}
