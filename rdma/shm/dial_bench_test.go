//go:build linux

package shm

import (
	"testing"

	"github.com/gosdp/gosdp/rdma"
)

// BenchmarkOpen opens a channel and closes it.
func BenchmarkOpen(b *testing.B) {
	for _, zeroCopy := range []bool{false, true} {
		name := "copying"
		if zeroCopy {
			name = "reach"
		}
		b.Run(name, func(b *testing.B) {
			cfg := stepConfig
			cfg.ZeroCopy = zeroCopy
			p := newPlace(b)
			p.cfg = cfg
			for b.Loop() {
				q, r, err := open(b.Context(), p, newOffer(b, "", cfg), rdma.Peer{})
				if err != nil {
					b.Fatal(err)
				}
				q.Abort()
				r.Abort()
			}
		})
	}
}
