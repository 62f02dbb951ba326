//go:build linux

package inside

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/sdp"
)

// TestPlainServer serves one client on network tcp, with the default settings. It writes what it has
// read.
func TestPlainServer(t *testing.T) {
	at := os.Getenv(serveVariable)
	if at == "" {
		t.Skip("missing: " + serveVariable + ", the address for the server of the tests between two hosts; test/lab sets it")
	}
	ln, err := sdp.Listen("tcp", net.JoinHostPort(at, "7472"))
	require.NoError(t, err)
	defer ln.Close()
	c, err := ln.Accept()
	require.NoError(t, err)
	defer c.Close()
	_, err = io.Copy(c, struct{ io.Reader }{c})
	assert.NoError(t, err)
}

// TestPlainClient makes a hundred exchanges with that server, with the default settings. On one host, a
// tenth would make the connection move.
func TestPlainClient(t *testing.T) {
	at := os.Getenv(serverVariable)
	if at == "" {
		t.Skip("missing: " + serverVariable + ", the address of the other host; test/lab sets it")
	}
	c, err := sdp.Dial("tcp", at)
	require.NoError(t, err)
	defer c.Close()
	assert.IsType(t, (*net.TCPConn)(nil), c)
	for i := range 100 {
		message := []byte(strings.Repeat(fmt.Sprintf("exchange %02d\n", i), 64))
		_, err := c.Write(message)
		require.NoError(t, err)
		got := make([]byte, len(message))
		_, err = io.ReadFull(c, got)
		require.NoError(t, err)
		require.True(t, bytes.Equal(message, got))
	}
	require.NoError(t, c.(interface{ CloseWrite() error }).CloseWrite())
	rest, err := io.ReadAll(c)
	assert.NoError(t, err)
	assert.Empty(t, rest)
}
