package bcopy

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// buffer is a private buffer that counts how often it was given back.
type buffer struct{ released int }

func (b *buffer) Release() { b.released++ }

// lender hands out buffers and remembers them.
type lender struct{ all []*buffer }

func (l *lender) lend() *buffer {
	b := new(buffer)
	l.all = append(l.all, b)
	return b
}

// out is how many buffers have not come back; each may only once.
func (l *lender) out(t *testing.T) (n int) {
	t.Helper()
	for i, b := range l.all {
		require.LessOrEqual(t, b.released, 1, "buffer %d was released twice", i)
		n += 1 - b.released
	}
	return n
}

func release(o Owner) { o.Release() }

// drain reads all that is there.
func drain(s *Sink) (got []byte) {
	for s.Head() != nil {
		got = append(got, s.Head()...)
		if owner := s.Consume(len(s.Head())); owner != nil {
			owner.Release()
		}
	}
	return got
}

// TestSinkQueue keeps the order while its ring grows around a moving head.
func TestSinkQueue(t *testing.T) {
	s := NewSink(base)
	var l lender
	assert.Nil(t, s.Head())
	var want []byte
	next := byte(0)
	add := func() {
		payload := []byte{next, next + 1, next + 2}
		next += 3
		want = append(want, payload...)
		s.Add(payload, l.lend())
	}
	for range 100 { // two come and one goes: the head is everywhere in the ring
		add()
		add()
		head := s.Head()
		require.Equal(t, want[:len(head)], head)
		assert.Nil(t, s.Consume(1), "not all of it was read")
		require.Equal(t, want[1:3], s.Head())
		owner := s.Consume(2)
		require.NotNil(t, owner)
		owner.Release()
		want = want[3:]
		require.Equal(t, len(want), s.Bytes())
		require.Equal(t, len(want)/3, s.Lent())
		require.Equal(t, s.Lent(), l.out(t))
	}
	assert.Equal(t, want, drain(&s))
	assert.Zero(t, s.Bytes()+s.Lent()+l.out(t))
	assert.Nil(t, s.Head())
	add()
	assert.Equal(t, want[len(want)-3:], drain(&s), "it goes on after a burst")
}

// TestGather copies small payloads together, leaves large ones and the oldest
// where they are, and changes no byte.
func TestGather(t *testing.T) {
	sized := NewSink(base)
	most := sized.gatherMax()
	for _, v := range []struct {
		name  string
		sizes []int
		lent  int // after Gather
	}{
		{"nothing", nil, 0},
		{"only the oldest", []int{1}, 1},
		{"two small", []int{1, 1}, 1},
		{"small", []int{5, 6, 7, 8}, 1},
		{"the largest small one", []int{1, most, most}, 1},
		{"large", []int{1, most + 1, most + 1}, 3},
		{"large between small", []int{1, 2, 3, most + 1, 4, 5}, 2},
		{"large at the end", []int{1, 2, most + 1}, 2},
		{"more than a block", []int{1, most, most - 1, most, most, most, most, most, most,
			most, most, most, most, most, most, most, most, most, 1}, 1},
	} {
		t.Run(v.name, func(t *testing.T) {
			s := NewSink(base)
			var l lender
			var want []byte
			for i, n := range v.sizes {
				payload := bytes.Repeat([]byte{byte(i + 1)}, n)
				want = append(want, payload...)
				s.Add(payload, l.lend())
			}
			head := s.Head()
			for range 3 { // again has nothing more to do
				s.Gather(release)
				assert.Equal(t, v.lent, s.Lent())
				assert.Equal(t, v.lent, l.out(t))
				assert.Equal(t, len(want), s.Bytes())
			}
			if len(head) > 0 {
				assert.Same(t, &head[0], &s.Head()[0], "somebody may be reading the oldest")
				assert.Zero(t, l.all[0].released)
			}
			assert.Equal(t, want, drain(&s))
			assert.Zero(t, s.Lent()+s.Bytes()+l.out(t))
		})
	}
}

// TestGatherWhileTheHeadIsRead keeps what Head returned, partly consumed.
func TestGatherWhileTheHeadIsRead(t *testing.T) {
	s := NewSink(base)
	var l lender
	for i := range 10 {
		s.Add([]byte{byte(i), byte(i)}, l.lend())
	}
	s.Consume(1)
	s.Gather(release)
	assert.Equal(t, []byte{0}, s.Head())
	assert.Equal(t, 1, s.Lent())
	assert.Same(t, l.all[0], s.Consume(1))
	assert.Zero(t, s.Lent())
	assert.Nil(t, s.Consume(len(s.Head())), "memory of its own goes back to nobody")
	assert.Nil(t, s.Head())
}

// TestSinkAgainstBytes compares a Sink with a plain slice over random calls.
func TestSinkAgainstBytes(t *testing.T) {
	seeds := uint64(500)
	if testing.Short() {
		seeds = 10
	}
	for seed := range seeds {
		random := rand.New(rand.NewPCG(seed, 1))
		s := NewSink(base)
		var l lender
		var model []byte
		next := byte(0)
		for step := range 2000 {
			what := fmt.Sprintf("seed %d, step %d", seed, step)
			switch k := random.IntN(100); {
			case k < 45:
				n := 1 + random.IntN(1<<random.IntN(13))
				payload := make([]byte, n)
				for i := range payload {
					payload[i] = next
					next++
				}
				model = append(model, payload...)
				s.Add(payload, l.lend())
			case k < 95:
				head := s.Head()
				require.True(t, bytes.HasPrefix(model, head), what)
				require.Equal(t, len(model) == 0, head == nil, what)
				if head == nil {
					continue
				}
				n := 1 + random.IntN(len(head))
				if k < 85 {
					n = len(head)
				}
				owner := s.Consume(n)
				require.False(t, n < len(head) && owner != nil, what)
				if owner != nil {
					owner.Release()
				}
				model = model[n:]
			default:
				s.Gather(release)
			}
			if s.Bytes() != len(model) {
				t.Fatalf("%s: %d bytes unread, want %d", what, s.Bytes(), len(model))
			}
		}
		require.Equal(t, s.Lent(), l.out(t))
		require.True(t, bytes.Equal(model, drain(&s)), "seed %d", seed)
		require.Zero(t, l.out(t)+s.Lent()+s.Bytes())
	}
}

// TestResize is §10.6 for the end whose buffers they are.
func TestResize(t *testing.T) {
	for _, v := range []struct {
		name    string
		size    int
		desired uint32
		want    int
	}{
		{"to grow", 1000, 5000, 5000},
		{"to shrink", 5000, 1000, 1000},
		{"to stay", 1000, 1000, 1000},
		{"to grow further than we go", 1000, 1 << 31, MaxBuffer},
		{"to grow when we cannot", MaxBuffer + 10, 1 << 20, MaxBuffer + 10}, // never the other way
		{"to shrink to more than we grow to", MaxBuffer + 10, MaxBuffer + 5, MaxBuffer + 5},
	} {
		t.Run(v.name, func(t *testing.T) {
			s := NewSink(v.size)
			_, due := s.Ack()
			require.False(t, due)
			got := s.Resize(v.desired)
			if v.desired < uint32(v.size) {
				assert.GreaterOrEqual(t, got, int(v.desired), "§10.6: not smaller than requested")
				assert.LessOrEqual(t, got, v.size)
			} else {
				assert.GreaterOrEqual(t, got, v.size, "§10.6: not against the request's direction")
			}
			assert.Equal(t, v.want, got)
			size, due := s.Ack()
			assert.True(t, due, "nothing of the old size is posted")
			assert.Equal(t, got, size)
			assert.Equal(t, got, s.Size())
			s.Acked()
			_, due = s.Ack()
			assert.False(t, due)
		})
	}
}

// TestAckOfLargerBuffersWaits until those of the old size are used up.
func TestAckOfLargerBuffersWaits(t *testing.T) {
	s := NewSink(1000)
	s.Resize(2000)
	s.Older(3)
	for range 3 {
		_, due := s.Ack()
		assert.False(t, due)
		s.Used()
	}
	_, due := s.Ack()
	assert.True(t, due)
	s.Used() // of the new ones
	_, due = s.Ack()
	assert.True(t, due)
}

// sized is payload of n bytes.
func sized(n int) []byte { return make([]byte, n) }

// TestCrowded: the limit of small payloads is a quarter of a block, and fewer than gatherLeast are left alone.
func TestCrowded(t *testing.T) {
	for _, v := range []struct {
		name              string
		buffer, size, all int
		crowded           bool // if more than all-1 buffers may not be lent
	}{
		{"small", 4096, 1024, gatherLeast, true},
		{"large", 4096, 1025, gatherLeast, false},
		{"small for a block that is less than a buffer", 1 << 20, gatherBlock / 4, gatherLeast, true},
		{"large for it", 1 << 20, gatherBlock/4 + 1, gatherLeast, false},
		{"few", 4096, 1, gatherLeast - 1, false},
	} {
		t.Run(v.name, func(t *testing.T) {
			s := NewSink(v.buffer)
			var l lender
			for range v.all {
				s.Add(sized(v.size), l.lend())
			}
			assert.Equal(t, v.crowded, s.Crowded(v.all-1))
			assert.False(t, s.Crowded(v.all))
			s.Gather(release)
			assert.False(t, s.Crowded(0), "there is nothing more to gather")
		})
	}
}

// TestGatherFillsBlocks: a block takes payload until it is full, also from a later Gather.
func TestGatherFillsBlocks(t *testing.T) {
	s := NewSink(4096)
	var l lender
	add := func(n int) {
		for range n {
			s.Add(sized(1024), l.lend())
		}
		s.Gather(release)
	}
	add(3) // the oldest stays
	assert.EqualValues(t, 4096, s.own)
	assert.Equal(t, 1, s.Lent())
	add(2)
	assert.EqualValues(t, 4096, s.own, "there was room in the block")
	add(1)
	assert.EqualValues(t, 2*4096, s.own, "it was full")
	assert.Equal(t, 1, s.Lent())
	assert.Len(t, drain(&s), 6*1024)
	assert.Zero(t, s.own)
}

// TestLongQueueIsNotKept after a burst, and a short one is.
func TestLongQueueIsNotKept(t *testing.T) {
	for n, kept := range map[int]bool{64: true, 65: false} {
		s := NewSink(base)
		var l lender
		for range n {
			s.Add(sized(1), l.lend())
		}
		drain(&s)
		assert.Equal(t, kept, s.queue != nil, "%d payloads", n)
	}
}
