package main

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/examples/internal/programs"
)

func TestMain(m *testing.M) { programs.Main(m, "-serve", main) }

func TestHTTP2WithClientCertificates(t *testing.T) {
	for _, device := range []string{"shm", "iwarp", "tcp"} {
		t.Run(device, func(t *testing.T) {
			t.Setenv("SDP_DEVICES", device)
			want := "16 requests of 1048576 bytes over HTTP/2 and TLS on 1 connection over " + device + "\n" +
				"without a certificate over " + device + ": remote error: tls: certificate required\n"
			var out bytes.Buffer
			programs.Again(func() bool {
				out.Reset()
				require.NoError(t, both(&out))
				return out.String() == want
			})
			require.Equal(t, want, out.String())
		})
	}
}
