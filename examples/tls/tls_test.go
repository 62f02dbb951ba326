package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/examples/internal/certs"
	"github.com/gosdp/gosdp/examples/internal/programs"
	"github.com/gosdp/gosdp/sdp"
)

func TestMain(m *testing.M) {
	programs.Main(m, "-serve", main)
}

func TestHTTP2WithClientCertificates(t *testing.T) {
	for _, device := range []string{"shm", "iwarp", "tcp"} {
		t.Run(device, func(t *testing.T) {
			over(t, device)
			want := `16 requests of 1048576 bytes over HTTP/2 and TLS on 1 connection over ` + device + "\n" +
				"without a certificate over .*: remote error: tls: certificate required\n"
			var out bytes.Buffer
			require.NoError(t, both(&out))
			require.Regexp(t, "^"+want+"$", out.String())
		})
	}
}

// TestServerThatNeedsNoCertificateIsReported: such a server waits for the client's request.
func TestServerThatNeedsNoCertificateIsReported(t *testing.T) {
	server, client, err := certs.New(clientName)
	require.NoError(t, err)
	weak, err := server.Config()
	require.NoError(t, err)
	weak.ClientAuth = tls.VerifyClientCertIfGiven
	listener, err := sdp.Listen("tcp", "localhost:0")
	require.NoError(t, err)
	defer listener.Close()
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				io.Copy(io.Discard, tls.Server(conn, weak))
			}()
		}
	}()

	config, err := client.Config()
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	err = callWithoutCertificate(ctx, listener.Addr().String(), config, io.Discard)
	require.ErrorContains(t, err, "i/o timeout", "the server waits for a request")
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
