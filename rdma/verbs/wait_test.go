//go:build linux && cgo

package verbs

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/gosdp/gosdp/internal/spin"
	"github.com/gosdp/gosdp/rdma"
)

// TestNoWakeUpIsLost: a device may ignore requests for an event as long as the last one is on the
// channel, as mlx5 does. Wait returns each message nevertheless, whether it parks or blocks, although
// Poll takes some messages without their events, and events are late.
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
		receive := func(messages int) {
			for i := range messages {
				for end := time.Now().Add(rand.N(20 * time.Microsecond)); time.Now().Before(end); {
				}
				f.order("receive", "-", 100)
				select {
				case <-got:
				case <-time.After(5 * time.Second):
					t.Fatalf("Wait sleeps although message %d has arrived", i)
				}
			}
		}
		receive(2000)
		free := mayNotBlock()
		receive(4000)
		free()
		receive(2000)
	})
}

// mayNotBlock makes waits park until the test calls free: one wait of a process blocks at a time.
func mayNotBlock() (free func()) {
	var w spin.Waiter
	for range 3 {
		w.Lasted(0)
	}
	for end := time.Now().Add(time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if w.Block() {
			return w.Blocked
		}
	}
	return func() {} // none blocks here
}
