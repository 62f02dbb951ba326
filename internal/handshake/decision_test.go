package handshake

import (
	"context"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/internal/handshake/handshaketest"
	"github.com/gosdp/gosdp/rdma"
	"github.com/gosdp/gosdp/wire"
)

func TestDecisionMustBeTheFirstEmptyData(t *testing.T) {
	message := func(change func(*wire.Message)) []byte {
		m := handshaketest.Stay()
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
			server, client := handshaketest.QueuePairs(t)
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
	server, client := handshaketest.QueuePairs(t)
	client.Close()
	_, err := decision(t.Context(), server)
	assert.ErrorIs(t, err, io.EOF)
}

func TestDecisionEndsWithItsTime(t *testing.T) {
	server, _ := handshaketest.QueuePairs(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		_, err := decision(ctx, server)
		done <- err
	}()
	cancel()
	assert.ErrorIs(t, <-done, context.Canceled)
}

// TestTimeForTheDecision: it is that of the handshake, or what a client has after the Reply if that is longer.
func TestTimeForTheDecision(t *testing.T) {
	for _, v := range []struct{ handshake, stepUp, decision, want time.Duration }{
		{time.Hour, time.Minute, time.Minute, time.Hour},
		{-time.Hour, time.Minute, 2 * time.Minute, 2 * time.Minute}, // the Reply was late
		{-time.Hour, 3 * time.Minute, 2 * time.Minute, 3 * time.Minute},
		{-time.Hour, 0, 0, 2 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), v.handshake)
			defer cancel()
			h := &Incoming{Server: &Server{cfg: Config{StepUpTimeout: v.stepUp, DecisionTimeout: v.decision}}, ctx: ctx, all: t.Context()}
			deciding, cancel := h.deciding()
			defer cancel()
			end, ok := deciding.Deadline()
			assert.True(t, ok)
			assert.Equal(t, v.want, time.Until(end))
			assert.NoError(t, deciding.Err())
		})
	}
}

// TestDecisionThatCameInTime has a machine so busy that the time is over before
// the decision was read.
func TestDecisionThatCameInTime(t *testing.T) {
	server, client := handshaketest.QueuePairs(t)
	handshaketest.Send(t, client, handshaketest.Stay())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.Eventually(t, func() bool {
		_, err := decision(ctx, server)
		return err == nil
	}, time.Minute, time.Millisecond)
}
