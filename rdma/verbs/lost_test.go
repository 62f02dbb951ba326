//go:build linux && cgo

package verbs

import (
	"errors"
	"syscall"
	"testing"

	"github.com/gosdp/gosdp/rdma"
)

// A device that takes no more work, because the peer has ended the connection, say, returns its error
// negative, as cxgb4 does. What had arrived before is delivered first, and the error is the device's.
func TestRefusedWork(t *testing.T) {
	onFake(t, func(f *fake) {
		for name, ends := range map[string]func(q *QueuePair, lent []rdma.Buffer){
			"send": func(q *QueuePair, lent []rdma.Buffer) {
				_, err := q.PostSend([]rdma.SendWR{{Header: make([]byte, 16)}})
				if !errors.Is(err, syscall.ENOTCONN) {
					t.Errorf("PostSend = %v", err)
				}
			},
			"receive": func(q *QueuePair, lent []rdma.Buffer) {
				for _, b := range lent {
					b.Release()
				}
			},
		} {
			q := f.queuePair()
			var lent []rdma.Buffer
			poll := func() error {
				var wcs [1]rdma.Completion
				n, err := q.Poll(wcs[:])
				if n == 1 {
					lent = append(lent, wcs[0].Buffer)
				}
				return err
			}
			for range 8 {
				f.order("receive", "a", 16)
				must(t, poll())
			}
			f.order("receive", "a", 16)
			f.set("refuse", int(syscall.ENOTCONN))
			before := len(lent)
			ends(q, lent)
			must(t, poll())
			if len(lent) != before+1 {
				t.Errorf("%s: what had arrived is lost", name)
			}
			if err := poll(); !errors.Is(err, syscall.ENOTCONN) {
				t.Errorf("%s: Poll = %v", name, err)
			}
			f.set("refuse", 0)
			must(t, q.Abort())
		}
	})
}
