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
	if slices.Contains(os.Args, "-listen") {
		main()
		return
	}
	os.Exit(m.Run())
}

func TestEcho(t *testing.T) {
	for _, device := range []string{"shm", "iwarp", "tcp"} {
		for _, size := range []int{0, 4 << 20} {
			t.Run(fmt.Sprintf("%s/%d", device, size), func(t *testing.T) {
				t.Setenv("SDP_DEVICES", device)
				var out bytes.Buffer
				require.NoError(t, both(size, &out))
				require.Equal(t, fmt.Sprintf("%d bytes there and back over %s\n", size, device), out.String())
			})
		}
	}
}
