//go:build !windows

package engine

import (
	"bytes"
	"io"
	"net"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/wire"
)

// TestZcopyBuffers has net.Buffers, as its own method and ours write them, with
// slices large and small.
func TestZcopyBuffers(t *testing.T) {
	slices := 30
	if testing.Short() {
		slices = 10
	}
	for name, write := range map[string]func(c *Conn, v *net.Buffers) (int64, error){
		"net.Buffers.WriteTo": func(c *Conn, v *net.Buffers) (int64, error) { return v.WriteTo(c) },
		"Conn.WriteBuffers":   (*Conn).WriteBuffers,
	} {
		t.Run(name, func(t *testing.T) {
			c, s, cq, sq := counted(t, 1)
			neverOverdue(c)
			newTalk(t, c, s).untilMode(wire.ModePipelined, 1<<20, 1<<20)
			var v net.Buffers
			var want []byte
			for i := range slices {
				for _, size := range []int{0, 1, 3000, 100_000 + i, 400_000} {
					b := random(size)
					v, want = append(v, b), append(want, b...)
				}
			}
			var reader sync.WaitGroup
			reader.Go(func() {
				got := make([]byte, len(want))
				_, err := io.ReadFull(s, got)
				assert.NoError(t, err)
				assert.True(t, bytes.Equal(want, got))
			})
			readWaits(s)
			before := c.Stats().ZCopySent
			n, err := write(c, &v)
			assert.NoError(t, err)
			assert.EqualValues(t, len(want), n)
			reader.Wait()
			assert.Greater(t, c.Stats().ZCopySent-before, uint64(len(want)/2))
			cq.backFromWrite(t)
			sq.backFromRead(t)
		})
	}
}

// TestZcopySetReadBuffer: private buffers that hold less hold up nothing.
func TestZcopySetReadBuffer(t *testing.T) {
	for _, size := range []int{64 << 10, 100_000, 32 << 20} {
		c, s := zcopyPair(t, 1)
		require.NoError(t, s.SetReadBuffer(size))
		k := newTalk(t, c, s)
		for range 4 {
			k.once(1<<20, 1<<20)
			k.once(1<<20, 4<<10)
		}
		c.Close()
		s.Close()
	}
}

// TestAllocsZcopy: a Write, and the Reads that it goes into, on each of the
// ways.
func TestAllocsZcopy(t *testing.T) {
	if raceEnabled {
		t.Skip("missing: a build without the race detector, which allocates")
	}
	for _, v := range []struct {
		name        string
		mode        wire.Mode
		size, chunk int // of the Write, and of the Reads
		most        float64
	}{
		{"fetched", wire.ModeCombined, 12_000, recvSize, 20},
		{"filled", wire.ModePipelined, 1 << 20, 1 << 20, 10},
		{"copied", wire.ModeBuffered, 1 << 20, 4 << 10, 0},
	} {
		t.Run(v.name, func(t *testing.T) {
			const rounds = 100
			c, s, cq, sq := counted(t, 1)
			if v.mode != wire.ModeBuffered {
				neverOverdue(c)
			}
			k := newTalk(t, c, s)
			switch v.mode {
			case wire.ModePipelined:
				k.pipelined()
			case wire.ModeBuffered:
				k.untilMode(v.mode, v.size, v.chunk)
			}
			start := make(chan struct{})
			var reader sync.WaitGroup
			in, out := make([]byte, v.size), make([]byte, v.size)
			reader.Go(func() {
				for range start {
					for got := 0; got < v.size; {
						n, err := s.Read(in[got:min(got+v.chunk, v.size)])
						if !assert.NoError(t, err) {
							break
						}
						got += n
					}
					start <- struct{}{}
				}
			})
			once := func() {
				start <- struct{}{}
				readWaits(s)
				_, err := c.Write(out)
				assert.NoError(t, err)
				<-start
			}
			for range 10 {
				once()
			}
			moved := c.Stats().ZCopySent
			reads, _ := sq.counts()
			_, writes := cq.counts()
			allocs := testing.AllocsPerRun(rounds-1, once)
			moved = c.Stats().ZCopySent - moved
			readsNow, _ := sq.counts()
			_, writesNow := cq.counts()
			mode, _ := modeOut(c)
			t.Logf("mode %d: %v allocations for %d bytes; %d%% went without a copy, in %d RDMA Reads and %d RDMA Writes for %d Writes",
				mode, allocs, v.size, int(moved)*100/(rounds*v.size), readsNow-reads, writesNow-writes, rounds)
			assert.LessOrEqual(t, allocs, v.most)
			assert.Equal(t, v.mode, mode)
			close(start)
			reader.Wait()
		})
	}
}
