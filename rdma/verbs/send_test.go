//go:build linux && cgo

package verbs

import (
	"bytes"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/gosdp/gosdp/rdma"
)

// The ring is used again while its former contents are still being sent, and messages arrive as they
// were when they were posted.
func TestReusedRing(t *testing.T) {
	cfg := config
	cfg.Buffers = 4 * mostRing / maxMessage
	a, b := pair(t, hardware(t), cfg)
	defer b.Close()
	defer a.Close()
	messages := make([][]byte, 12*mostRing/maxMessage)
	for i := range messages {
		messages[i] = make([]byte, maxMessage)
		rand.NewChaCha8([32]byte{byte(i)}).Read(messages[i])
	}
	posted := make(chan struct{}, cfg.Buffers) // receive buffers that messages will need
	send := func(m []byte) error {
		for {
			n, err := a.PostSend([]rdma.SendWR{{Payload: m}})
			if n == 1 || err != nil {
				return err
			}
			if err := a.WaitRoom(); err != nil {
				return err
			}
		}
	}
	var sending sync.WaitGroup
	sending.Go(func() {
		for _, m := range messages {
			posted <- struct{}{}
			if err := send(m); err != nil {
				t.Error(err)
				a.Close() // so that b ends
				return
			}
		}
	})
	var wcs [16]rdma.Completion
	wrong := 0
	for got := 0; got < len(messages); {
		n, err := b.Wait(wcs[:])
		must(t, err)
		for _, wc := range wcs[:n] {
			if !bytes.Equal(wc.Buffer.Bytes, messages[got]) {
				wrong++
			}
			wc.Buffer.Release()
			<-posted
			got++
		}
	}
	sending.Wait()
	if wrong > 0 {
		t.Errorf("of %d messages %d have other bytes than were sent", len(messages), wrong)
	}
}
