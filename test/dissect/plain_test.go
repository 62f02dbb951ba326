package dissect

import (
	"io"
	"net"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/sdp"
)

// TestNothingIsSent: a Dial to a server without SDP on this host, and a Close, send the same
// packets as with package net, including every field that a program can set.
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
		require.NoError(t, c.(interface{ CloseWrite() error }).CloseWrite())
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
	want, _ := withoutAcks(captured[0])
	got, acks := withoutAcks(captured[1])
	assert.Equal(t, want, got)
	require.Len(t, got, 4, "two SYN and two FIN")
	for _, ack := range acks {
		assert.Equal(t, got[3].Marks, ack.Marks, "acknowledgements are marked like the last FIN")
	}
}

// withoutAcks separates pure acknowledgements from other packets. Whether the kernel sends
// one before the server's FIN or with it depends on timing.
func withoutAcks(packets []Packet) (others, acks []Packet) {
	for _, p := range packets {
		if p.Flags == "0x0010" && p.Len == 0 {
			acks = append(acks, p)
		} else {
			others = append(others, p)
		}
	}
	return others, acks
}
