package main

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/bench/internal/harness"
)

// TestMain lets the test binary be the peer process, as the program is.
func TestMain(m *testing.M) {
	if harness.PeerMain() {
		return
	}
	os.Exit(m.Run())
}

// BenchmarkLoad carries each case over each contender, side by side. Its
// allocations are those of this process, of its Read and Write in steady state.
func BenchmarkLoad(b *testing.B) {
	peer, err := harness.StartPeer()
	require.NoError(b, err)
	defer func() { require.NoError(b, peer.Close()) }()
	for _, load := range harness.Cases {
		for _, contender := range harness.Contenders {
			b.Run(load.Name()+"/net="+contender.Name, func(b *testing.B) {
				benchmark(b, peer, load, contender)
			})
		}
	}
}

// warmUp is how many messages a connection carries before it is measured, which
// lets its buffers grow.
const warmUp = 64

func benchmark(b *testing.B, peer *harness.Peer, load harness.Case, contender harness.Contender) {
	link, err := peer.Dial(b.Context(), contender)
	require.NoError(b, err)
	defer link.Close()
	require.NoError(b, link.Run(load, warmUp))

	b.ReportAllocs()
	b.SetBytes(int64(load.Size))
	b.ResetTimer()
	err = link.Run(load, b.N)
	b.StopTimer()
	require.NoError(b, err)
	if load.Metric != harness.ByteRate {
		b.ReportMetric(load.Metric.Of(b.N, load.Size, b.Elapsed()), load.Metric.Unit())
	}
}
