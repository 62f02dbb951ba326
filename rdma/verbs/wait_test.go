//go:build linux && cgo

package verbs

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/gosdp/gosdp/rdma"
)

// TestNoWakeUpIsLost: a device may ignore requests for an event as long as the last one is on the
// channel, as mlx5 does. Wait returns each message nevertheless, although Poll takes some messages
// without their events, and events are late.
func TestNoWakeUpIsLost(t *testing.T) {
	onFake(t, func(f *fake) {
		q := f.queuePair()
		defer q.Abort()
		f.set("event_us", 30)
		got := make(chan struct{}, 1)
		go func() {
			var wcs [8]rdma.Completion
			for {
				n, err := q.Wait(wcs[:])
				if err != nil {
					return
				}
				for i := range n {
					wcs[i].Buffer.Release()
					got <- struct{}{}
				}
			}
		}()
		for i := range 8000 {
			for end := time.Now().Add(rand.N(20 * time.Microsecond)); time.Now().Before(end); {
			}
			f.order("receive", "-", 100)
			select {
			case <-got:
			case <-time.After(5 * time.Second):
				t.Fatalf("Wait sleeps although message %d has arrived", i)
			}
		}
	})
}
