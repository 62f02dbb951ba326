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
	// On a busy machine, a server may need longer than the default of a second. The connection would be plain TCP.
	sdpDialer.Config = &sdp.Config{ReplyTimeout: time.Minute, StepUpTimeout: time.Minute}
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
			t.Setenv("SDP_DEVICES", test.device)
			var out bytes.Buffer
			over := test.security + ": all of it on 1 connection over " + test.device + "\n"
			require.NoError(t, both(test.security, &out))
			for _, call := range calls {
				require.Contains(t, out.String(), fmt.Sprintf("%s: %s: ", test.security, call.name))
			}
			require.Contains(t, out.String(), over)
		})
	}
}
