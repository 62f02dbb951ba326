package sdp

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/internal/handshake"
)

func TestPlainReasonNames(t *testing.T) {
	for r, want := range map[PlainReason]string{
		PlainOther: "other", PlainPeer: "plain_peer", PlainHost: "other_host",
		PlainSetupFailed: "setup_failed", PlainRule: "rule", PlainOff: "off", plainReasons: "other",
	} {
		assert.Equal(t, want, r.String())
		text, err := r.MarshalText()
		assert.NoError(t, err)
		assert.Equal(t, want, string(text))
	}
	b, err := json.Marshal(map[PlainReason]uint64{PlainPeer: 1})
	assert.NoError(t, err)
	assert.Equal(t, `{"plain_peer":1}`, string(b))
}

// TestPlainReasonOfAConnection is what the peer has answered, if it was asked.
func TestPlainReasonOfAConnection(t *testing.T) {
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	assert.Equal(t, PlainOther, plainReason(a, nil))
	c, peer := rawPair(t)
	defer c.Close()
	defer peer.Close()
	for _, v := range []struct {
		asked error
		is    PlainReason
	}{
		{nil, PlainHost},
		{&handshake.NotSDPError{Err: io.EOF}, PlainPeer},
		{&handshake.NotSDPError{Err: io.EOF, Usable: true}, PlainSetupFailed},
		{io.ErrUnexpectedEOF, PlainSetupFailed},
	} {
		assert.Equal(t, v.is, plainReason(c, v.asked), "%v", v.asked)
	}
}

// TestFailedHandshakeIsKnown to the caller that counts Dials.
func TestFailedHandshakeIsKnown(t *testing.T) {
	address, _ := serve(t, func(c *net.TCPConn) {
		io.WriteString(c, "another protocol")
		io.Copy(io.Discard, c)
	})
	c, why, err := (&Dialer{Config: asking(nil)}).dialContext(context.Background(), "tcp", address)
	require.NoError(t, err)
	defer c.Close()
	var not *handshake.NotSDPError
	assert.ErrorAs(t, why, &not)
}
