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
			p, err := listen(cfg)
			if err != nil {
				b.Fatal(err)
			}
			defer p.Close()
			for b.Loop() {
				i, err := p.Invite(rdma.Peer{}, func(b []byte) ([]byte, int, error) { return b, 7, nil })
				if err != nil {
					b.Fatal(err)
				}
				q, err := device{}.Dial(b.Context(), i.Address(), cfg, []byte("x"), settle("x"))
				if err != nil {
					b.Fatal(err)
				}
				r, err := i.Take(b.Context())
				if err != nil {
					b.Fatal(err)
				}
				q.Abort()
				r.Abort()
			}
		})
	}
}
