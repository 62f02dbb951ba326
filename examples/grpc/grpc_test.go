package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/examples/internal/programs"
)

func TestMain(m *testing.M) { programs.Main(m, "-serve", main) }

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
			programs.Again(func() bool {
				out.Reset()
				err := both(test.security, &out)
				t.Log("\n" + out.String())
				require.NoError(t, err)
				return strings.Contains(out.String(), over)
			})
			for _, call := range calls {
				require.Contains(t, out.String(), fmt.Sprintf("%s: %s: ", test.security, call.name))
			}
			require.Contains(t, out.String(), over)
		})
	}
}
