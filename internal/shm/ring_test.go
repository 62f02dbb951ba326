package shm

import (
	"bytes"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// pair returns both ends of a ring with areas of the given sizes.
func pair(w *way, sizes [areas]int) (*Producer, *Consumer) {
	var mem [areas][]byte
	c := &Consumer{way: w}
	for i, n := range sizes {
		mem[i] = make([]byte, n)
		c.most += uint64(n)
	}
	p := newProducer(w, mem)
	p.Widen()
	c.mem = mem
	return &p, c
}

var tiny = [areas]int{1, 2, 4}

// ringState is a ring of tiny areas and both of its ends, as values.
type ringState struct {
	head, tail uint64
	next       [areas]uint64
	mem        [7]byte
	p          struct {
		pos, taken uint64
		uses       [areas]use
		used       int
	}
	c struct {
		pos  uint64
		next [areas]uint64
		area uint8
	}
	loaded bool // the consumer has loaded head
	seen   uint64
}

// step runs f on the ring in state s, and returns the state after it.
func (s ringState) step(f func(p *Producer, c *Consumer, s *ringState)) ringState {
	var w way
	w.head.Store(s.head)
	w.tail.Store(s.tail)
	p, c := pair(&w, tiny)
	at := 0
	for i := range p.mem {
		w.next[i].Store(s.next[i])
		at += copy(p.mem[i], s.mem[at:])
	}
	p.pos, p.taken = s.p.pos, s.p.taken
	if s.p.used > 0 {
		p.uses = append(p.uses[:0], s.p.uses[:s.p.used]...)
	}
	c.pos, c.next, c.area = s.c.pos, s.c.next, s.c.area
	f(p, c, &s)
	s.head, s.tail = w.head.Load(), w.tail.Load()
	at = 0
	for i := range p.mem {
		s.next[i] = w.next[i].Load()
		at += copy(s.mem[at:], p.mem[i])
	}
	s.p.pos, s.p.taken = p.pos, p.taken
	s.p.uses = [areas]use{}
	s.p.used = copy(s.p.uses[:], p.uses)
	s.c.pos, s.c.next, s.c.area = c.pos, c.next, c.area
	return s
}

// TestRingModel visits every state of a ring through which some bytes go, with every change of area at
// every position, and the consumer's two loads at any time. Each byte is its position.
func TestRingModel(t *testing.T) {
	total := uint64(14)
	if testing.Short() {
		total = 10
	}
	seen := map[ringState]bool{{}: true}
	order := []ringState{{}}
	used := [areas]int{}
	for i := 0; i < len(order); i++ {
		s := order[i]
		used[s.c.area]++
		var after []ringState
		for n := 1; n <= 3 && s.p.pos+uint64(n) <= total; n++ {
			after = append(after, s.step(func(p *Producer, c *Consumer, _ *ringState) {
				b := make([]byte, n)
				for i := range b {
					b[i] = byte(p.pos) + byte(i)
				}
				_, err := p.Put(b)
				require.NoError(t, err)
			}))
		}
		after = append(after, s.step(func(p *Producer, _ *Consumer, _ *ringState) { p.Grow() }))
		after = append(after, s.step(func(p *Producer, _ *Consumer, s *ringState) {
			var rest []byte
			for from := s.tail; ; {
				b := p.Rest(from)
				if len(b) == 0 {
					break
				}
				rest = append(rest, b...)
				from += uint64(len(b))
			}
			require.Len(t, rest, int(p.pos-s.tail))
			for i, b := range rest {
				require.EqualValues(t, s.tail+uint64(i), b)
			}
		}))
		if !s.loaded {
			after = append(after, s.step(func(_ *Producer, c *Consumer, s *ringState) { s.loaded, s.seen = true, c.head.Load() }))
		} else {
			for n := 1; n <= 3; n++ {
				after = append(after, s.step(func(_ *Producer, c *Consumer, s *ringState) {
					b, from := make([]byte, n), c.pos
					k, err := c.take(b, s.seen)
					require.NoError(t, err, "%+v", s)
					require.Equal(t, s.seen != from, k > 0, "%+v", s)
					for i, b := range b[:k] {
						require.EqualValues(t, from+uint64(i), b, "%+v", s)
					}
					s.loaded, s.seen = false, 0
				}))
			}
		}
		for _, n := range after {
			if !seen[n] {
				seen[n] = true
				order = append(order, n)
			}
		}
	}
	t.Logf("%d states", len(order))
	for i, n := range used {
		assert.NotZero(t, n, "area %d", i)
	}
}

// TestRingStreams: every byte arrives in order, while the producer and the consumer run at once.
func TestRingStreams(t *testing.T) {
	var w way
	p, c := pair(&w, [areas]int{64, 256, 1024})
	const total = 1 << 20
	sent := make([]byte, total)
	for i := range sent {
		sent[i] = byte(i * 7 >> 3)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		r := rand.New(rand.NewPCG(1, 2))
		for b := sent; len(b) > 0; {
			n, err := p.Put(b[:min(len(b), 1+r.IntN(200))])
			if !assert.NoError(t, err) {
				return
			}
			if n == 0 && r.IntN(4) == 0 {
				p.Grow()
			}
			b = b[n:]
		}
	})
	var got bytes.Buffer
	b := make([]byte, 300)
	r := rand.New(rand.NewPCG(3, 4))
	for got.Len() < total {
		n, err := c.Take(b[:1+r.IntN(len(b))])
		require.NoError(t, err)
		got.Write(b[:n])
	}
	wg.Wait()
	assert.True(t, bytes.Equal(sent, got.Bytes()))
	n, err := p.Unread()
	assert.NoError(t, err)
	assert.Zero(t, n)
}

// TestRingOfHostilePeer: whatever a peer writes into its words, the other end returns an error, or
// bytes of the ring.
func TestRingOfHostilePeer(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	value := func(near uint64) uint64 {
		switch r.IntN(3) {
		case 0:
			return near + r.Uint64N(20) - 10
		case 1:
			return r.Uint64()
		}
		return 1<<r.IntN(64) - 1
	}
	corrupt := 0
	for range 20_000 {
		var w way
		p, c := pair(&w, tiny)
		b := make([]byte, 8)
		for range 20 {
			switch r.IntN(6) {
			case 0:
				w.tail.Store(value(p.pos))
			case 1:
				w.head.Store(value(c.pos))
			case 2:
				w.next[r.IntN(areas)].Store(value(c.pos << areaBits))
			case 3:
				n, err := p.Put(b[:r.IntN(8)])
				require.LessOrEqual(t, n, 8)
				if err != nil {
					require.ErrorIs(t, err, ErrCorrupt)
					corrupt++
				}
			case 4:
				p.Grow()
				p.Rest(p.taken)
			case 5:
				n, err := c.Take(b[:r.IntN(8)])
				require.LessOrEqual(t, n, 8)
				if err != nil {
					require.ErrorIs(t, err, ErrCorrupt)
					corrupt++
				}
			}
		}
	}
	assert.NotZero(t, corrupt)
}

// TestPositionBehindTheArea: more bytes than an area has cannot be in it.
func TestPositionBehindTheArea(t *testing.T) {
	var w way
	_, c := pair(&w, tiny)
	w.head.Store(uint64(len(c.mem[0]) + 1))
	n, err := c.Take(make([]byte, 100))
	assert.ErrorIs(t, err, ErrCorrupt)
	assert.Zero(t, n)
}

func TestAllocsRing(t *testing.T) {
	var w way
	p, c := pair(&w, [areas]int{64, 256, 1024})
	b := make([]byte, 200)
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		p.Put(b)
		c.Take(b)
	}))
}

// TestWiden: a producer stays in the small area until it may use the medium one.
func TestWiden(t *testing.T) {
	s, _ := pair(new(way), [areas]int{small, medium, large})
	p := newProducer(s.way, s.mem)
	b := make([]byte, small+1)
	n, err := p.Put(b)
	require.NoError(t, err)
	assert.Equal(t, small, n)
	n, err = p.Put(b)
	require.NoError(t, err)
	assert.Zero(t, n)
	assert.False(t, p.Wide())
	assert.False(t, p.Grow(), "from one area to the next")
	p.Widen()
	assert.True(t, p.Wide())
	n, err = p.Put(b)
	require.NoError(t, err)
	assert.Equal(t, len(b), n)
}

// TestRingHoldsWhatTCPWould: a producer whose consumer reads nothing puts more than four megabytes.
func TestRingHoldsWhatTCPWould(t *testing.T) {
	var w way
	p, c := pair(&w, [areas]int{small, medium, large})
	total := 0
	b := make([]byte, 10_000)
	for {
		n, err := p.Put(b)
		require.NoError(t, err)
		total += n
		if n == 0 && !p.Grow() {
			break
		}
	}
	assert.Equal(t, medium+large, total)
	for total > 0 {
		n, err := c.Take(b)
		require.NoError(t, err)
		require.NotZero(t, n)
		total -= n
	}
	_, err := p.Put(b)
	require.NoError(t, err)
	assert.EqualValues(t, 1, p.current().area, "the large area is given up when it is empty")
}
