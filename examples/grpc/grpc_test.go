package main

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestMain lets the test binary be the server process, as the program is.
func TestMain(m *testing.M) {
	if slices.Contains(os.Args, "-serve") {
		main()
		return
	}
	os.Exit(m.Run())
}

func TestEveryKindOfCall(t *testing.T) {
	for _, device := range []string{"iwarp", "tcp"} {
		for _, security := range []string{"plaintext", "TLS"} {
			t.Run(device+"/"+security, func(t *testing.T) {
				t.Setenv("SDP_DEVICES", device)
				var out bytes.Buffer
				err := both(security, &out)
				t.Log("\n" + out.String())
				require.NoError(t, err)
				for _, call := range calls {
					require.Contains(t, out.String(), fmt.Sprintf("%s: %s: ", security, call.name))
				}
				require.Contains(t, out.String(), security+": all of it on 1 connection over "+device+"\n")
			})
		}
	}
}
