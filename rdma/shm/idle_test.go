//go:build linux

package shm

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/rdma"
)

// TestIdleWhileSomebodyWaits: a sender that was refused room in the big ring does not wait for it in the
// small one, which is smaller than that.
func TestIdleWhileSomebodyWaits(t *testing.T) {
	for _, taken := range []bool{true, false} {
		t.Run(fmt.Sprintf("taken %t", taken), func(t *testing.T) {
			a, b := pairOf(t, testConfig)
			defer a.Close()
			defer b.Close()
			b.ProvideReceive(64, 64<<10)
			large := []rdma.SendWR{{Payload: make([]byte, 60_000)}}
			for n := 1; n > 0; {
				var err error
				n, err = a.PostSend(large)
				require.NoError(t, err)
			}
			require.True(t, a.Busy())
			takeAll := func() {
				var wcs [16]rdma.Completion
				for n := 1; n > 0; {
					var err error
					n, err = b.Poll(wcs[:])
					require.NoError(t, err)
					for i := range wcs[:n] {
						wcs[i].Buffer.Release()
					}
				}
			}
			if taken {
				takeAll()
			}
			a.Shrink()
			assert.Equal(t, taken, inSmallRing(a))
			if !taken {
				takeAll()
			}
			done := make(chan error, 1)
			go func() {
				_, err := a.PostSend([]rdma.SendWR{{Payload: make([]byte, 100)}})
				if err == nil {
					err = a.WaitRoom()
				}
				done <- err
			}()
			select {
			case err := <-done:
				assert.NoError(t, err)
			case <-time.After(time.Minute):
				t.Error("a sender waits for room that there is")
				a.Close()
				<-done
			}
		})
	}
}

// TestIdleLeavesTheRingThatIsWaitedFor: so it does if room comes while Shrink looks.
func TestIdleLeavesTheRingThatIsWaitedFor(t *testing.T) {
	a, b := pairOf(t, testConfig)
	defer a.Close()
	defer b.Close()
	b.ProvideReceive(64, 64<<10)
	_, err := a.PostSend([]rdma.SendWR{{Payload: make([]byte, 60_000)}})
	require.NoError(t, err)
	var wcs [1]rdma.Completion
	_, err = b.Wait(wcs[:])
	require.NoError(t, err)
	wcs[0].Buffer.Release()
	a.tx.want = int32(len(a.tx.ring.big) + 8) // there will never be so much room
	a.Shrink()
	assert.False(t, inSmallRing(a))
	a.tx.want = 0
	a.Shrink()
	assert.True(t, inSmallRing(a))
}

func inSmallRing(q *QueuePair) bool { return &q.tx.ring.ring[0] == &q.tx.ring.small[0] }

// TestIdleGivesBackTheBigRing: Shrink frees it, and the channel continues in the small one, repeatedly.
func TestIdleGivesBackTheBigRing(t *testing.T) {
	a, b := pairOf(t, testConfig)
	defer a.Close()
	defer b.Close()
	b.ProvideReceive(64, 64<<10)
	var wcs [1]rdma.Completion
	exchange := func(n int, fill byte) {
		t.Helper()
		payload := make([]byte, n)
		for i := range payload {
			payload[i] = fill
		}
		k, err := a.PostSend([]rdma.SendWR{{Header: []byte{fill}, Payload: payload}})
		require.NoError(t, err)
		require.Equal(t, 1, k)
		k, err = b.Wait(wcs[:])
		require.NoError(t, err)
		require.Equal(t, 1, k)
		got := wcs[0].Buffer.Bytes
		require.Len(t, got, n+1)
		require.Equal(t, fill, got[0])
		require.Equal(t, fill, got[n])
		wcs[0].Buffer.Release()
	}
	for round := range byte(50) {
		for i := range byte(5) {
			exchange(100, i)
			if round%2 == 0 {
				exchange(50000, round)
			}
		}
		a.Shrink()
		a.Shrink()
		if round%6 == 0 { // it looks before anything arrives
			k, err := b.Poll(wcs[:])
			require.NoError(t, err)
			require.Zero(t, k)
		}
		if round%2 == 0 {
			assert.Zero(t, a.area.big(0)[100], "a page that was given back is empty")
		}
		if round%3 == 0 {
			exchange(50000, 200) // immediately after it
		}
	}
}
