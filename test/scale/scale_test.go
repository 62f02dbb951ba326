package main

import (
	"fmt"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// memoryVariable makes this program one of the two processes of TestMemory. Its value is
// "server" and a device, or "client", a device and an address.
const memoryVariable = "SDP_SCALE_MEMORY"

// memoryMain is the main function of these processes, or nil if there are no control groups.
var memoryMain func(role string) error

func TestMain(m *testing.M) {
	if device := os.Getenv(serveVariable); device != "" {
		if err := runServer(device); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if role := os.Getenv(memoryVariable); role != "" {
		if err := memoryMain(role); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

// TestManyAndShort opens and closes up to a thousand connections per second. Memory,
// descriptors and goroutines of both ends must not grow.
func TestManyAndShort(t *testing.T) {
	d := 5 * time.Second
	if testing.Short() {
		d = time.Second
	}
	devices := []string{"iwarp"}
	if runtime.GOOS == "linux" {
		devices = append(devices, "shm")
	}
	for _, device := range devices {
		t.Run(device, func(t *testing.T) {
			c := churn{device: device, rate: 1000, beside: 64}
			r, err := c.run(d)
			require.NoError(t, err)
			assert.Positive(t, r.done)
			t.Log("\n", r)
		})
	}
}
