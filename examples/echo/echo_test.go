package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/examples/internal/programs"
	"github.com/gosdp/gosdp/sdp"
)

func TestMain(m *testing.M) {
	programs.Main(m, "-listen", main)
}

func TestEcho(t *testing.T) {
	for _, device := range []string{"shm", "iwarp", "tcp"} {
		for _, size := range []int{0, 4 << 20} {
			if device == "shm" && size == 0 {
				continue // nothing has to move
			}
			t.Run(fmt.Sprintf("%s/%d", device, size), func(t *testing.T) {
				over(t, device)
				var out bytes.Buffer
				want := fmt.Sprintf("%d bytes there and back over %s\n", size, device)
				require.NoError(t, both(size, &out))
				require.Equal(t, want, out.String())
			})
		}
	}
}

// TestServerNeedsNoInput: as a service, a program has no standard input.
func TestServerNeedsNoInput(t *testing.T) {
	program, err := os.Executable()
	require.NoError(t, err)
	server := exec.Command(program, "-listen", "localhost:0") // its standard input is at its end
	stdout, err := server.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, server.Start())
	defer server.Wait()
	defer server.Process.Kill()
	address, err := bufio.NewReader(stdout).ReadString('\n')
	require.NoError(t, err)
	for range 50 {
		require.NoError(t, call(strings.TrimSpace(address), 1, io.Discard))
	}
}

func TestUnusableArgumentsAreRefused(t *testing.T) {
	for _, args := range [][]string{
		{"7007"},
		{"-listen", "localhost:0", "-dial", "localhost:1"},
		{"-bytes", "-1"},
	} {
		require.Error(t, run(args, io.Discard), args)
	}
}

// over makes server and client use a device.
func over(t *testing.T, device string) {
	t.Helper()
	t.Setenv("SDP_DEVICES", device)
	dialer.Config = &sdp.Config{ReplyTimeout: time.Minute, StepUpTimeout: time.Minute}
	if device == "tcp" {
		dialer.Config.Devices = []string{device}
	}
}
