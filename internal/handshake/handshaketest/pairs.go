package handshaketest

import (
	"net"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/rdma/iwarp"
)

// TCPPair returns the two ends of a TCP connection.
func TCPPair(t *testing.T) (server, client *net.TCPConn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	c, err := net.Dial("tcp", ln.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	s, err := ln.Accept()
	require.NoError(t, err)
	t.Cleanup(func() { s.Close() })
	return s.(*net.TCPConn), c.(*net.TCPConn)
}

// QueuePairs returns the two ends of a connection over iwarp.
func QueuePairs(t *testing.T) (server, client *iwarp.QueuePair) {
	t.Helper()
	s, c := TCPPair(t)
	accepted := make(chan *iwarp.QueuePair, 1)
	go func() {
		defer close(accepted)
		r, err := iwarp.ReadRequest(s)
		if assert.NoError(t, err) {
			q, err := r.Accept(iwarp.Config{}, nil)
			assert.NoError(t, err)
			accepted <- q
		}
	}()
	client, _, err := iwarp.Connect(c, iwarp.Config{}, nil)
	require.NoError(t, err)
	server = <-accepted
	require.NotNil(t, server)
	server.ProvideReceive(4, 4096)
	t.Cleanup(func() { server.Abort(); client.Abort() })
	return server, client
}
