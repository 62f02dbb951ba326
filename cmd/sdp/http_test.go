package main

import (
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestPageIsForTheSameHost(t *testing.T) {
	h := sameHost(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for from, want := range map[string]int{
		"127.0.0.1:1": 200, "[::1]:1": 200, "[::ffff:127.0.0.1]:1": 200,
		"192.0.2.1:1": 403, "[fe80::1%eth0]:1": 403, "": 403,
	} {
		r := httptest.NewRequest("GET", "/debug/sdp", nil)
		r.RemoteAddr = from
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		require.Equal(t, want, w.Code, from)
	}
}

// TestHTTPClientsAreBounded has clients that connect and say nothing.
func TestHTTPClientsAreBounded(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := l.Addr().String()
	require.NoError(t, l.Close())
	stop, err := serveHTTP(address, http.NotFoundHandler(), slog.New(slog.NewTextHandler(os.Stderr, nil)))
	require.NoError(t, err)
	defer stop()
	for i := range maxHTTP + 1 {
		c, err := net.Dial("tcp", address)
		require.NoError(t, err)
		defer c.Close()
		if i < maxHTTP {
			continue
		}
		require.NoError(t, c.SetDeadline(time.Now().Add(3*time.Second))) // less than ReadTimeout
		_, err = c.Read(make([]byte, 1))
		require.Error(t, err)
		require.False(t, strings.Contains(err.Error(), "timeout"), "one more client is served")
	}
}
