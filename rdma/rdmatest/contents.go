package rdmatest

import (
	"math/bits"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"
)

// noise is random, so that a byte in the wrong place is noticed. Checks compare with slices of it and
// do not generate contents anew, which would be slow with -race.
var noise = sync.OnceValue(func() []byte {
	b := make([]byte, most+1<<16)
	_, _ = rand.NewChaCha8([32]byte{}).Read(b) // never fails
	return b
})

// contents returns the contents of the message or memory with this number: n bytes, at most most,
// which the caller must not change.
func contents(number uint64, n int) []byte {
	at := number * 40503 % (1 << 16) // odd, so 65,536 numbers in a row differ
	return noise()[at : at+uint64(n) : at+uint64(n)]
}

// repeat is how often a check repeats something: a quarter of n with -short.
func repeat(n int) int {
	if testing.Short() {
		return n / 4
	}
	return n
}

// newSeed returns the seed of one subtest.
func newSeed(t *testing.T) uint64 {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("RDMATEST_SEED"); s != "" {
		var err error
		seed, err = strconv.ParseUint(s, 10, 64)
		must(t, err)
	}
	t.Logf("RDMATEST_SEED=%d", seed)
	return seed
}

func newRand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 0)) }

// script is a sequence of messages that follows from a seed, so that the
// receiver knows what must come next.
type script struct {
	rng   *rand.Rand
	seq   uint64
	count int // messages left
	bytes int // bytes left: the last message may exceed them
	max   int // bytes in a message
}

// next returns the next message, which the caller must not change, and nil after the last.
func (s *script) next() []byte {
	if s.count <= 0 || s.bytes <= 0 {
		return nil
	}
	msg := contents(s.seq, s.size())
	s.seq++
	s.count--
	s.bytes -= len(msg)
	return msg
}

// size returns as many small sizes as large ones, and often the extremes.
func (s *script) size() int {
	switch s.rng.IntN(16) {
	case 0:
		return 1
	case 1:
		return s.max
	}
	return min(s.max, 1+s.rng.IntN(1<<s.rng.IntN(bits.Len(uint(s.max))+1)))
}
