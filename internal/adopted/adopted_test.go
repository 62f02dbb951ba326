package adopted

import (
	"net"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

type conn struct {
	net.Conn
	settled bool
}

func (c conn) SyscallConn() (syscall.RawConn, error) { return raw{settled: c.settled}, nil }

type raw struct {
	syscall.RawConn
	settled bool
}

func (r raw) SDP() bool { return r.settled }

func TestSettled(t *testing.T) {
	ordinary.Store(false) // a test before may have asked
	require.True(t, Settled(conn{settled: true}))
	require.False(t, Settled(conn{}))
	require.False(t, Settled(nil))
	client, server := net.Pipe()
	defer client.Close()
	defer server.Close()
	require.False(t, Settled(client))
	require.False(t, ordinary.Load())

	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	require.False(t, Settled(ln))
	c, err := net.Dial("tcp", ln.Addr().String())
	require.NoError(t, err)
	defer c.Close()
	require.False(t, Settled(c))
	require.True(t, ordinary.Load(), "package net is asked again for every connection")
}
