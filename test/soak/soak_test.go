package main

import (
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/gosdp/gosdp/sdp"
	"github.com/gosdp/gosdp/test/traffic"
)

// memoryVariable makes this program one of the two processes of TestAllocsStayWithinBudget. Its
// value is "server" and a device, or "client", a device, an address and a number of clients.
const memoryVariable = "SOAK_MEMORY"

// memoryMain is the main function of these processes, or nil if there are no control groups.
var memoryMain func(role string) error

func TestMain(m *testing.M) {
	role := os.Getenv(memoryVariable)
	switch {
	case os.Getenv(serveVariable) != "":
		fail(runServer(os.Getenv(serveVariable)))
	case role != "":
		fail(memoryMain(role))
	default:
		goleak.VerifyTestMain(m)
	}
}

// devices are the devices of this system that the tests use.
func devices() []string {
	if runtime.GOOS == "linux" {
		return []string{"iwarp", "shm"}
	}
	return []string{"iwarp"}
}

// TestNothingLeaks is a short run of the program.
func TestNothingLeaks(t *testing.T) {
	d := 5 * time.Second
	if testing.Short() {
		d = 500 * time.Millisecond
	}
	for _, device := range devices() {
		for _, l := range loads {
			t.Run(device+"/"+l.name, func(t *testing.T) {
				if testing.Short() {
					l.spec.MaxBytes = min(l.spec.MaxBytes, 1<<20)
				}
				summary, err := run(device, l, d, uint64(time.Now().UnixNano()))
				require.NoError(t, err)
				t.Log(summary)
			})
		}
	}
}

// TestStorm dials many connections at once and keeps them all open. Every dial must succeed,
// and every connection must carry data while all are open.
func TestStorm(t *testing.T) {
	n := 2000
	if testing.Short() {
		n = 300
	}
	for _, device := range devices() {
		t.Run(device, func(t *testing.T) { storm(t, device, n) })
	}
}

func storm(t *testing.T, device string, n int) {
	server, err := traffic.StartSecond(serveVariable + "=" + device)
	require.NoError(t, err)
	defer server.Stop()
	address := strings.Fields(server.First)[0]
	conns := make([]net.Conn, n)
	var dials sync.WaitGroup
	for i := range conns {
		dials.Go(func() {
			c, err := (&sdp.Dialer{Config: config(device)}).Dial("sdp", address)
			if assert.NoError(t, err) {
				conns[i] = c
			}
		})
	}
	dials.Wait()
	if t.Failed() {
		return
	}
	var sessions sync.WaitGroup
	for i, c := range conns {
		sessions.Go(func() {
			_, err := traffic.Client(c, traffic.Spec{Seed: uint64(i), MaxBytes: 64})
			assert.NoError(t, err)
		})
	}
	sessions.Wait()
	var a answer
	require.NoError(t, server.Ask(&a))
	assert.Zero(t, a.Failed, a.FirstFailure)
}
