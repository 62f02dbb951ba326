package main

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/examples/internal/programs"
	"github.com/gosdp/gosdp/sdp"
)

func TestMain(m *testing.M) {
	programs.Main(m, "-serve", main)
}

func TestEveryKindOfCall(t *testing.T) {
	for _, test := range []struct{ device, security string }{
		{"shm", "plaintext"},
		{"shm", "TLS"},
		{"iwarp", "plaintext"},
		{"iwarp", "TLS"},
		{"tcp", "plaintext"}, // for comparison without SDP
	} {
		t.Run(test.device+"/"+test.security, func(t *testing.T) {
			over(t, test.device)
			var out bytes.Buffer
			device := test.device
			if device == "shm" {
				device = "(shm|tcp)" // gRPC asks for the descriptor of each connection, which stays on TCP then
			}
			want := test.security + ": all of it on 1 connection over " + device + "\n"
			require.NoError(t, both(test.security, &out))
			for _, call := range calls {
				require.Contains(t, out.String(), fmt.Sprintf("%s: %s: ", test.security, call.name))
			}
			require.Regexp(t, want, out.String())
		})
	}
}

// over makes server and client use a device.
func over(t *testing.T, device string) {
	t.Helper()
	t.Setenv("SDP_DEVICES", device)
	sdpDialer.Config = &sdp.Config{ReplyTimeout: time.Minute, StepUpTimeout: time.Minute}
	if device == "tcp" {
		sdpDialer.Config.Devices = []string{device}
	}
}
