package handshake

import (
	"log/slog"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/gosdp/gosdp/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// testConfig has times that no test reaches unless it means to.
func testConfig() Config {
	return Config{
		Logger:           slog.New(slog.DiscardHandler),
		Devices:          []wire.Device{wire.DeviceIWARP},
		HandshakeTimeout: time.Hour,
		ReplyTimeout:     time.Hour,
		StepUpTimeout:    time.Hour,
		PlainTTL:         time.Minute,
		Hello:            wire.Hello{Bufs: 64, MaxAdverts: 4, LocalRcvSz: 4096, IRD: 8, ORD: 16},
	}
}
