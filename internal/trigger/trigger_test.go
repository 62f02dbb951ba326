package trigger

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// ask plays a connection whose score grows by one each time and which never meets anybody. It returns the scores at
// which the trigger says to do something other than wait.
func ask(dialler bool, at int, scores uint64, each time.Duration) map[Action][]uint64 {
	var t Trigger
	did := map[Action][]uint64{}
	next := t.Start(dialler, at, 0)
	for s := uint64(0); s <= scores; s++ {
		if s < next {
			continue
		}
		now := time.Duration(s) * each
		var do Action
		if do, next = t.Next(s, now); do != Nothing && do != Wait {
			did[do] = append(did[do], s)
		}
		switch do {
		case Invite:
			t.Begin(s, now)
		case Abandon:
			t.End(false)
			next = s + 1
		}
	}
	return did
}

// TestEndsMeet: whatever the address has learned, an acceptor seeks while the dialler listens, also if it counts up to
// one more.
func TestEndsMeet(t *testing.T) {
	for at := least; at <= most; at *= 2 {
		d, a := ask(true, at, 20_000, time.Millisecond), ask(false, at, 20_000, time.Millisecond)
		require.NotEmpty(t, d[Invite])
		from, to := d[Invite][0], d[Abandon][0]
		if at == least {
			assert.Zero(t, from)
			assert.EqualValues(t, 1, a[Seek][0])
		} else {
			assert.GreaterOrEqual(t, from, uint64(at))
		}
		assert.LessOrEqual(t, from, uint64(2*at), "at %d", at)
		sought := 0
		for _, s := range a[Seek] {
			if from < s && s+1 < to {
				sought++
			}
		}
		assert.Positive(t, sought, "at %d: the dialler listens from %d to %d, the acceptor seeks at %d", at, from, to, a[Seek])
	}
}

// TestInVain: a connection whose meetings are in vain stays on TCP after a few.
func TestInVain(t *testing.T) {
	did := ask(true, Pays, 1<<20, time.Microsecond*100)
	assert.Len(t, did[Invite], mostVain)
	assert.Len(t, did[Abandon], mostVain)
}

// TestSlowConnections: a connection that pauses counts again from its pause, and one whose every exchange comes after a
// pause never moves.
func TestSlowConnections(t *testing.T) {
	assert.Empty(t, ask(true, Pays, 1000, 2*time.Second)[Invite])
	assert.Empty(t, ask(false, Pays, 1000, 2*time.Second)[Seek])
	assert.Equal(t, []uint64{0}, ask(true, least, 1000, 2*time.Second)[Invite])
	assert.Equal(t, []uint64{1}, ask(false, least, 1000, 2*time.Second)[Seek])
}

func TestNever(t *testing.T) {
	var tr Trigger
	tr.Start(true, Pays, 0)
	tr.Never()
	do, next := tr.Next(1000, 0)
	assert.Equal(t, Nothing, do)
	assert.Equal(t, uint64(math.MaxUint64), next)
	assert.Equal(t, uint64(math.MaxUint64), tr.Restart(2000, 0))
}

// TestMemory: an address whose connections live long moves them at once, one with short ones not any more; a few of the
// other kind bring either back.
func TestMemory(t *testing.T) {
	var m Memory[string]
	assert.Equal(t, Pays, m.At("a"))
	for range 3 {
		m.Learn("a", Long)
	}
	assert.Equal(t, least, m.At("a"))
	for range 20 {
		m.Learn("b", Short)
	}
	assert.Equal(t, most, m.At("b"))
	assert.Equal(t, least, m.At("a"))
	m.Learn("b", Long)
	assert.Equal(t, Pays, m.At("b"))
	m.Learn("a", Short)
	assert.Equal(t, Pays, m.At("a"))
	var n Memory[int]
	for i := range 2 * mostKnown {
		n.Learn(i, Short)
	}
	assert.Len(t, n.known, mostKnown)
}

// TestVain: an address at which nobody comes to meetings costs less and less, until somebody comes.
func TestVain(t *testing.T) {
	var m Memory[string]
	m.Learn("a", Met)
	assert.Equal(t, Pays, m.At("a"))
	for range 3 {
		m.Learn("a", Long)
		m.Learn("a", Vain)
	}
	assert.Equal(t, least<<3, m.At("a"))
	for range 20 {
		m.Learn("a", Vain)
	}
	assert.Equal(t, most, m.At("a"))
	m.Learn("a", Met)
	assert.Equal(t, least, m.At("a"))
}

// TestPatience: a dialler that waits looks after one point at first, and then after up to four; an acceptor has somebody
// to wait for.
func TestPatience(t *testing.T) {
	for _, dialler := range []bool{true, false} {
		var tr Trigger
		tr.Start(dialler, 1000, 0)
		tr.Begin(100, 0)
		var at []uint64
		for score := uint64(101); score < 115; {
			do, next := tr.Next(score, 0)
			assert.Equal(t, Wait, do)
			at = append(at, next-score)
			score = next
		}
		if dialler {
			assert.Equal(t, []uint64{1, 2, 3, 4, 4}, at)
		} else {
			assert.Equal(t, slices.Repeat([]uint64{1}, 14), at)
		}
	}
}
