package sdp

import (
	"bytes"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestPinnedMemoryIsLogged by RDMA device, and not at all without one.
func TestPinnedMemoryIsLogged(t *testing.T) {
	var text bytes.Buffer
	log := slog.New(slog.NewTextHandler(&text, nil))
	log.Info("", appendPinned(nil, map[string]int64{"siw0": 4096, "mlx5_0": 1 << 20})...)
	require.Contains(t, text.String(), `pinned="map[mlx5_0:1048576 siw0:4096]"`)
	text.Reset()
	log.Info("", appendPinned(nil, nil)...)
	require.NotContains(t, text.String(), "pinned")
}
