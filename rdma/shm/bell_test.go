//go:build linux

package shm

import (
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/internal/spin"
	"github.com/gosdp/gosdp/rdma"
)

// TestNoRingIsLost has both ends park before each message, and the messages come
// at every moment of that.
func TestNoRingIsLost(t *testing.T) {
	times := 50_000
	if testing.Short() {
		times = 5000
	}
	a, b := pairOf(t, testConfig)
	var talking sync.WaitGroup
	var moved atomic.Int64
	for i, q := range []*QueuePair{a, b} {
		q.ProvideReceive(64, 4096)
		q.rx.spin.SetBusyPoll(spin.Off)
		talking.Go(func() {
			var wcs [4]rdma.Completion
			message := []rdma.SendWR{{Header: []byte("message")}}
			for round := range times {
				if round > 0 || i == 1 {
					n := 0
					for n == 0 {
						var err error
						if n, err = q.Wait(wcs[:1]); err != nil {
							return
						}
					}
					wcs[0].Buffer.Release()
				}
				for range rand.IntN(200) {
					spin.Pause(1)
				}
				if round%16 == 0 {
					runtime.Gosched()
				}
				if n, err := q.PostSend(message); n != 1 || err != nil {
					return
				}
				moved.Add(1)
			}
		})
	}
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		talking.Wait()
	}()
	for last := int64(-1); ; {
		select {
		case <-stopped:
			assert.EqualValues(t, 2*times, moved.Load())
			require.NoError(t, a.Close())
			require.NoError(t, b.Close())
			return
		case <-time.After(3 * time.Second):
		}
		now := moved.Load()
		if now == last {
			a.Abort()
			b.Abort()
			<-stopped
			require.FailNow(t, "both ends sleep", "behind %d messages", now)
		}
		last = now
	}
}
