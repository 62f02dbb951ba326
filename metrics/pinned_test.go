package metrics

import (
	"errors"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/rdma"
	"github.com/gosdp/gosdp/sdp"
)

// hardware is a device that has locked memory.
type hardware struct{ pinned map[string]int64 }

func (hardware) Name() string               { return "verbs" }
func (hardware) Probe() error               { return errors.New("this is a test") }
func (h hardware) Pinned() map[string]int64 { return h.pinned }

// TestPinnedMemory is exported for each RDMA device.
func TestPinnedMemory(t *testing.T) {
	rdma.RegisterDevice(hardware{pinned: map[string]int64{"mlx5_0": 1 << 20, "mlx5_1": 4096}})
	require.EqualValues(t, 4096, sdp.Stats().Pinned["mlx5_1"])
	collector := NewCollector()
	require.NoError(t, testutil.CollectAndCompare(collector, strings.NewReader(`
# HELP sdp_memory_pinned_bytes Memory that is locked for RDMA, by the hardware's device.
# TYPE sdp_memory_pinned_bytes gauge
sdp_memory_pinned_bytes{rdma_device="mlx5_0"} 1.048576e+06
sdp_memory_pinned_bytes{rdma_device="mlx5_1"} 4096
`), "sdp_memory_pinned_bytes"))
}
