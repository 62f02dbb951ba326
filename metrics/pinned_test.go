package metrics

import (
	"bytes"
	"errors"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/rdma"
	"github.com/gosdp/gosdp/sdp"
)

// hardware is a device that has locked memory.
type hardware struct {
	rdma.BaseDevice
	pinned map[string]int64
}

func (hardware) Name() string               { return "verbs" }
func (hardware) Probe() error               { return errors.New("this is a test") }
func (h hardware) Pinned() map[string]int64 { return h.pinned }

// register registers it once, also if the test is repeated.
var register = sync.OnceFunc(func() {
	rdma.RegisterDevice(hardware{pinned: map[string]int64{"mlx5_0": 1 << 20, "mlx5_1": 4096}})
})

// TestPinnedMemory is exported for each RDMA device, and is in the status and the log.
func TestPinnedMemory(t *testing.T) {
	register()
	require.EqualValues(t, 4096, sdp.Stats().Pinned["mlx5_1"])
	collector := NewCollector()
	require.NoError(t, testutil.CollectAndCompare(collector, strings.NewReader(`
# HELP sdp_memory_pinned_bytes Memory that is locked for RDMA, by the hardware's device.
# TYPE sdp_memory_pinned_bytes gauge
sdp_memory_pinned_bytes{rdma_device="mlx5_0"} 1.048576e+06
sdp_memory_pinned_bytes{rdma_device="mlx5_1"} 4096
`), "sdp_memory_pinned_bytes"))

	var status bytes.Buffer
	require.NoError(t, sdp.WriteStatus(&status))
	require.Contains(t, status.String(), `"pinned":{"mlx5_0":1048576,"mlx5_1":4096}`)

	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	l, err := sdp.Listen("sdp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	accepted := make(chan net.Conn, 1)
	go func() {
		s, _ := l.Accept()
		accepted <- s
	}()
	c, err := (&sdp.Dialer{Config: &sdp.Config{Logger: logger}}).Dial("sdp", l.Addr().String())
	require.NoError(t, err)
	s := <-accepted
	require.NotNil(t, s)
	require.NoError(t, c.Close())
	require.NoError(t, s.Close())
	for _, event := range []string{"connection established", "connection closed"} {
		require.Regexp(t, event+`.*pinned="map\[mlx5_0:1048576 mlx5_1:4096]"`, log.String())
	}
}
