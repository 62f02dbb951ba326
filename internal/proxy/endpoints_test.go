package proxy

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/sdp/stats"
)

// TestPinnedMetric has a sample for each RDMA device.
func TestPinnedMetric(t *testing.T) {
	for _, f := range sdpMetrics(stats.Totals{Pinned: map[string]int64{"siw0": 4096, "mlx5_0": 1 << 20}}) {
		if f.name == "sdp_memory_pinned_bytes" {
			require.Equal(t, []sample{{`{rdma_device="mlx5_0"}`, 1 << 20}, {`{rdma_device="siw0"}`, 4096}}, f.samples)
			return
		}
	}
	t.Fatal("there is no sdp_memory_pinned_bytes")
}
