package engine

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestRandomTraffic has Writes and Reads of random sizes in both directions,
// and deadlines that pass in the middle of them: no byte is lost, doubled or
// moved, and n is always how many went.
func TestRandomTraffic(t *testing.T) {
	total := 6 << 20
	if raceEnabled {
		total = 2 << 20
	}
	seeds := 6
	if testing.Short() {
		seeds = 2
	}
	for seed := range uint64(seeds) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			c, s := pair(t)
			bothWays(t, c, s, seed, total)
		})
	}
}

// TestBytesOfConcurrentWritesStayTogether has many goroutines write records of
// all sizes.
func TestBytesOfConcurrentWritesStayTogether(t *testing.T) {
	const writers, records = 16, 60
	c, s := pair(t)
	var calls sync.WaitGroup
	for w := range writers {
		calls.Go(func() {
			r := rand.New(rand.NewPCG(1, uint64(w)))
			for i := range records {
				n := r.IntN(64)
				if i%4 == 0 {
					n = r.IntN(200 << 10)
				}
				record := []byte{byte(w), byte(i), byte(n), byte(n >> 8), byte(n >> 16)}
				record = append(record, streamAt(w*1000+i, n)...)
				k, err := c.Write(record)
				assert.NoError(t, err)
				assert.Equal(t, len(record), k)
			}
		})
	}
	var next [writers]int
	for range writers * records {
		head := make([]byte, 5)
		_, err := io.ReadFull(s, head)
		require.NoError(t, err)
		w, i, n := int(head[0]), int(head[1]), int(head[2])|int(head[3])<<8|int(head[4])<<16
		require.Less(t, w, writers)
		require.Equal(t, next[w], i, "the records of one writer come in their order")
		next[w]++
		body := make([]byte, n)
		_, err = io.ReadFull(s, body)
		require.NoError(t, err)
		require.NoError(t, checkStream(w*1000+i, body))
	}
	calls.Wait()
}

// TestConcurrentReadsShareTheStream has many goroutines read: each gets pieces
// of the stream in one piece, and all of them together all of it.
func TestConcurrentReadsShareTheStream(t *testing.T) {
	const readers = 8
	total := 8 << 20
	if raceEnabled {
		total = 2 << 20
	}
	c, s := pair(t)
	var calls sync.WaitGroup
	calls.Go(func() {
		_, err := writeStream(c, 0, total, 100_000)
		assert.NoError(t, err)
		assert.NoError(t, c.CloseWrite())
	})
	var mu sync.Mutex
	var all int
	var seen, want [256]int // how often each byte
	for off := 0; off < total; off += streamMax {
		for _, x := range streamAt(off, streamMax) {
			want[x]++
		}
	}
	for i := range readers {
		calls.Go(func() {
			b := make([]byte, 1000<<i)
			for {
				n, err := s.Read(b[:min(len(b), 60_000)])
				mu.Lock()
				all += n
				for _, x := range b[:n] {
					seen[x]++
				}
				mu.Unlock()
				if !bytes.Contains(streamed[:2*streamPeriod], b[:n]) {
					assert.Fail(t, "a Read returned what does not follow each other in the stream")
					return
				}
				if err != nil {
					assert.Equal(t, io.EOF, err)
					return
				}
			}
		})
	}
	calls.Wait()
	assert.Equal(t, total, all)
	assert.Equal(t, want, seen)
}

// TestReaderPassesTheDutyOn has a Write without credit wait for what a Read
// polls. When the Read has what it wants and leaves, the Write has to be told,
// or nobody finds the credit that comes afterwards.
func TestReaderPassesTheDutyOn(t *testing.T) {
	const total = 16 << 20 // more than the peer's buffers hold
	c, s := pair(t)
	require.NoError(t, c.SetDeadline(time.Now().Add(soon)))
	var calls sync.WaitGroup
	calls.Go(func() {
		_, err := c.Read(make([]byte, 1))
		assert.NoError(t, err)
	})
	require.Eventually(t, func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.poll.leader == parked && c.poll.background == absent
	}, soon, time.Millisecond, "the Read polls")
	calls.Go(func() {
		n, err := c.Write(make([]byte, total))
		assert.NoError(t, err)
		assert.Equal(t, total, n)
	})
	require.Eventually(t, func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.poll.cond.Waited()
	}, soon, time.Millisecond, "the Write waits for the Read")
	_, err := s.Write([]byte("x"))
	require.NoError(t, err)
	require.NoError(t, s.SetDeadline(time.Now().Add(soon)))
	_, err = io.CopyN(io.Discard, s, total)
	assert.NoError(t, err)
	calls.Wait()
}

func TestAllocsRoundTrip(t *testing.T) {
	if raceEnabled {
		t.Skip("missing: a build without the race detector, which allocates")
	}
	for _, size := range []int{1, 64, 4 << 10, 32 << 10} {
		c, s := pair(t)
		ping := roundTrip(t, c, s, size)
		for range 100 {
			ping() // pools fill, buffers find their size
		}
		assert.Zero(t, testing.AllocsPerRun(500, ping), "allocations in a round trip of %d bytes", size)
		c.Close()
		s.Close()
	}
}

// roundTrip returns a function that sends size bytes from c to s and back.
func roundTrip(t testing.TB, c, s *Conn, size int) func() {
	out, in := make([]byte, size), make([]byte, size)
	return func() {
		for _, way := range [2][2]*Conn{{c, s}, {s, c}} {
			if _, err := way[0].Write(out); err != nil {
				t.Error(err)
			}
			if _, err := io.ReadFull(way[1], in); err != nil {
				t.Error(err)
			}
		}
	}
}

func BenchmarkRoundTrip(b *testing.B) {
	c, s := pair(b)
	c.SetDeadline(time.Time{})
	s.SetDeadline(time.Time{})
	ping := roundTrip(b, c, s, 64)
	b.ReportAllocs()
	for b.Loop() {
		ping()
	}
}

func BenchmarkStream(b *testing.B) {
	for _, v := range []struct {
		name string
		size int
	}{{"64B", 64}, {"1MB", 1 << 20}} {
		b.Run(v.name, func(b *testing.B) {
			c, s := pair(b)
			c.SetDeadline(time.Time{})
			s.SetDeadline(time.Time{})
			var reader sync.WaitGroup
			reader.Go(func() {
				in := make([]byte, 1<<20)
				for {
					if _, err := s.Read(in); err != nil {
						return
					}
				}
			})
			out := make([]byte, v.size)
			b.SetBytes(int64(v.size))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := c.Write(out); err != nil {
					b.Fatal(err)
				}
			}
			c.CloseWrite()
			reader.Wait()
		})
	}
}
