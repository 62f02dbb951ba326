package main

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/rdma"
	"github.com/gosdp/gosdp/sdp"
	"github.com/gosdp/gosdp/wire"
)

// twin is a device of which the tool's code knows nothing. Processes with GOSDP_TEST_TWIN have it.
type twin struct{ rdma.BaseDevice }

func (twin) Name() string { return "twin" }
func (twin) Probe() error { return errors.New("cable is unplugged") }

func init() {
	if os.Getenv("GOSDP_TEST_TWIN") != "" {
		wire.KnownDevices = append(wire.KnownDevices, wire.KnownDevice{Device: 7, Name: "twin"})
		rdma.RegisterDevice(twin{})
	}
}

// TestDevicesComeFromTheRegistry: every command knows a device that is registered.
func TestDevicesComeFromTheRegistry(t *testing.T) {
	t.Setenv("GOSDP_TEST_TWIN", "1")
	out, _, _ := tool(t, "check")
	assert.Contains(t, out, "twin   cannot be used: cable is unplugged\n")

	server := startTool(t, toolCommand(t, "perf", "-s", "-listen", "127.0.0.1:0"))
	at := server.line(t, "waiting for clients at ")[len("waiting for clients at "):]
	for _, command := range []string{"ping", "perf"} {
		out, errs, _ := tool(t, command, "-ways", "twin", at)
		assert.Contains(t, out+errs, "not twin: cable is unplugged")
	}

	startTool(t, toolCommand(t, "proxy", "-listen", "sdp://127.0.0.1:0", "-dial", "tcp://127.0.0.1:1")).
		line(t, `msg="sdp: RDMA device unusable on this machine" device=twin reason="cable is unplugged"`)

	dir, _, address := serving(t, "SDP_DEVICES=twin,iwarp", "SDP_PEERS=127.0.0.1")
	c, err := (&sdp.Dialer{Config: &sdp.Config{Devices: []string{"iwarp"}}}).Dial("sdp", address)
	require.NoError(t, err)
	defer c.Close()
	require.Eventually(t, func() bool { // the server has not accepted it yet
		out, _, _ = tool(t, "stat", "-interval", "0", "-dir", dir)
		return strings.Contains(out, c.LocalAddr().String())
	}, patience, time.Millisecond)
	assert.Contains(t, out, "twin: cable is unplugged")
}
