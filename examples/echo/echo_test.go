package main

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/examples/internal/programs"
)

func TestMain(m *testing.M) { programs.Main(m, "-listen", main) }

func TestEcho(t *testing.T) {
	for _, device := range []string{"shm", "iwarp", "tcp"} {
		for _, size := range []int{0, 4 << 20} {
			t.Run(fmt.Sprintf("%s/%d", device, size), func(t *testing.T) {
				t.Setenv("SDP_DEVICES", device)
				var out bytes.Buffer
				want := fmt.Sprintf("%d bytes there and back over %s\n", size, device)
				programs.Again(func() bool {
					out.Reset()
					require.NoError(t, both(size, &out))
					return out.String() == want
				})
				require.Equal(t, want, out.String())
			})
		}
	}
}
