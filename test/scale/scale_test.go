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

// memoryVariable makes this program one of the two of TestMemory: "server", or "client"
// and an address, and a device.
const memoryVariable = "SDP_SCALE_MEMORY"

// beMemory is what it does then; nil where there are no control groups.
var beMemory func(role string) error

func TestMain(m *testing.M) {
	if device := os.Getenv(serveVariable); device != "" {
		if err := beServer(device); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if role := os.Getenv(memoryVariable); role != "" {
		if err := beMemory(role); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

// TestManyAndShort opens and closes connections, a thousand each second, if the
// machine can: memory, descriptors and goroutines of both ends stay as they are.
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
