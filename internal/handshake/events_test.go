package handshake

import (
	"bytes"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/wire"
)

// TestReasonIsLoggedOnceForOperators has many connections decline a device for a reason that an
// operator can change, and for one that only the peer's can.
func TestReasonIsLoggedOnceForOperators(t *testing.T) {
	var text bytes.Buffer
	cfg := &Config{Logger: slog.New(slog.NewTextHandler(&text, nil))}
	client, server := net.Pipe()
	defer client.Close()
	defer server.Close()
	why := fmt.Errorf("no permission, at %v", time.Now().UnixNano()) // each run has its own
	var reasons Reasons
	for range 10 {
		cfg.decline(&reasons, wire.DeviceVerbs, client, why)
		cfg.decline(&reasons, wire.DeviceVerbs, client, errNotChosen)
		cfg.decline(&reasons, wire.DeviceVerbs, client, errNotOffered)
	}
	lines := strings.Split(strings.TrimSpace(text.String()), "\n")
	require.Len(t, lines, 1)
	require.Contains(t, lines[0], "level=INFO")
	require.Contains(t, lines[0], "no permission")
}
