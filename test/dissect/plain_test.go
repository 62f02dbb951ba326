package dissect

import (
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/sdp"
)

// TestNothingIsSent to a server without SDP on this host: on the wire a Dial and a Close
// are those of package net, to the last field that a program can set.
func TestNothingIsSent(t *testing.T) {
	var captured [][]Packet
	for _, dial := range []func(network, address string) (net.Conn, error){net.Dial, sdp.Dial} {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		defer ln.Close()
		capture := Start(t, ln.Addr().(*net.TCPAddr).Port)
		c, err := dial("tcp", ln.Addr().String())
		require.NoError(t, err)
		s, err := ln.Accept()
		require.NoError(t, err)
		time.Sleep(100 * time.Millisecond) // what would be sent is sent at once
		require.NoError(t, c.(*net.TCPConn).CloseWrite())
		_, err = io.ReadAll(s)
		require.NoError(t, err)
		s.Close()
		_, err = io.ReadAll(c)
		require.NoError(t, err)
		c.Close()
		captured = append(captured, capture.Packets())
	}
	for _, p := range captured[1] {
		assert.Zero(t, p.Len)
	}
	assert.Equal(t, captured[0], captured[1])
	assert.NotEmpty(t, captured[1])
}
