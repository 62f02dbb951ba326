//go:build linux && cgo

package verbs

import (
	"math/rand/v2"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/gosdp/gosdp/internal/spin"
	"github.com/gosdp/gosdp/rdma"
)

// TestUntakenEvent: Poll takes a message without its event. A device such as mlx5 ignores requests for
// an event as long as that one is on the channel, so the wait that parks next takes it.
func TestUntakenEvent(t *testing.T) {
	onFake(t, func(f *fake) {
		q := f.queuePair()
		defer q.Abort()
		q.in.spin.SetBusyPoll(spin.Off)
		var wcs [8]rdma.Completion
		receive := func(wait func([]rdma.Completion) (int, error)) {
			n, err := wait(wcs[:])
			if err != nil || n != 1 {
				t.Errorf("%d messages, %v", n, err)
				return
			}
			wcs[0].Buffer.Release()
		}
		for range 20 {
			q.arm()
			f.order("receive", "-", 100)
			throughNetpoller(t) // which sees the event, for which nobody waits
			receive(q.Poll)
			came := make(chan struct{})
			go func() {
				defer close(came)
				receive(q.Wait)
			}()
			until(t, "Wait does not park", q.in.parked.Load)
			throughNetpoller(t)
			f.order("receive", "-", 100)
			select {
			case <-came:
			case <-time.After(patience):
				t.Fatal("Wait sleeps although a message has arrived")
			}
		}
	})
}

// throughNetpoller has an event of its own pass through the runtime's netpoller, behind those that are
// there already.
func throughNetpoller(t *testing.T) {
	t.Helper()
	r, w, err := os.Pipe()
	must(t, err)
	defer w.Close()
	defer r.Close()
	read := closed(func() { r.Read(make([]byte, 1)) })
	runtime.Gosched() // it parks
	w.Write([]byte{1})
	<-read
}

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
		times := 8000
		if testing.Short() {
			times = 1000
		}
		for i := range times {
			for end := time.Now().Add(rand.N(20 * time.Microsecond)); time.Now().Before(end); {
			}
			f.order("receive", "-", 100)
			select {
			case <-got:
			case <-time.After(patience):
				t.Fatalf("Wait sleeps although message %d has arrived", i)
			}
		}
	})
}
