package listener

import (
	"context"
	"io"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/rdma"
	"github.com/gosdp/gosdp/rdma/iwarp"
	"github.com/gosdp/gosdp/wire"
)

// queuePairs returns a connected pair, the accepting end first.
func queuePairs(t *testing.T) (server, client *iwarp.QueuePair) {
	t.Helper()
	s, c := tcpPair(t)
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

func TestDecisionMustBeTheFirstEmptyData(t *testing.T) {
	message := func(change func(*wire.Message)) []byte {
		m := stay()
		change(&m)
		return append(m.AppendHeader(nil), m.Payload...)
	}
	for _, v := range []struct {
		name  string
		bytes []byte
		err   string
	}{
		{"a DisConn", message(func(m *wire.Message) { m.MID = wire.MIDDisConn }), "DisConn: MID"},
		{"data", message(func(m *wire.Message) { m.Payload = []byte("early") }), "Data: payload: is 5 bytes"},
		{"the second message", message(func(m *wire.Message) { m.MSeq = 2 }), "Data: MSeq: is 2"},
		{"an answer to nothing", message(func(m *wire.Message) { m.MSeqAck = 1 }), "Data: MSeqAck: is 1"},
		{"an unknown MID", message(func(m *wire.Message) { m.MID = 0x7F }), "MID"},
		{"no message", []byte("x"), "BSDH"},
	} {
		t.Run(v.name, func(t *testing.T) {
			server, client := queuePairs(t)
			n, err := client.PostSend([]rdma.SendWR{{Header: v.bytes}})
			require.NoError(t, err)
			require.Equal(t, 1, n)
			client.Flush()
			_, err = decision(t.Context(), server)
			var malformed *wire.Error
			require.ErrorAs(t, err, &malformed)
			assert.ErrorContains(t, err, v.err)
		})
	}
}

func TestDecisionOfAClientThatLeaves(t *testing.T) {
	server, client := queuePairs(t)
	client.Close()
	_, err := decision(t.Context(), server)
	assert.ErrorIs(t, err, io.EOF)
}

func TestDecisionEndsWithItsTime(t *testing.T) {
	server, _ := queuePairs(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		_, err := decision(ctx, server)
		done <- err
	}()
	cancel()
	assert.ErrorIs(t, <-done, context.Canceled)
}

// TestDecisionThatCameInTime has a machine so busy that the time is over before
// the decision was read.
func TestDecisionThatCameInTime(t *testing.T) {
	server, client := queuePairs(t)
	send(t, client, stay())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.Eventually(t, func() bool {
		_, err := decision(ctx, server)
		return err == nil
	}, 10e9, 1e6)
}
