package sdp

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/internal/handshake"
	"github.com/gosdp/gosdp/internal/localpeer"
)

// TestReasonOnAnotherHost is what the peer has answered, because the kernel does not show it.
func TestReasonOnAnotherHost(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	c, err := net.Dial("tcp", ln.Addr().String())
	require.NoError(t, err)
	defer c.Close()
	s, err := ln.Accept()
	require.NoError(t, err)
	require.NoError(t, s.(*net.TCPConn).SetLinger(0))
	require.NoError(t, s.Close())
	require.Eventually(t, func() bool { // its end is not on this host any more
		_, err := localpeer.Other(c)
		return errors.Is(err, localpeer.ErrElsewhere)
	}, soon, time.Millisecond)
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
	if !localpeer.Sighted() {
		t.Skip("missing: marks of sockets")
	}
	lc := net.ListenConfig{Control: Announce}
	ln, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0") // whose mark is wrong: nobody serves SDP
	require.NoError(t, err)
	defer ln.Close()
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			io.WriteString(c, "another protocol")
			c.Close()
		}
	}()
	c, why, err := new(Dialer).dialContext(context.Background(), "tcp", ln.Addr().String())
	require.NoError(t, err)
	defer c.Close()
	var not *handshake.NotSDPError
	assert.ErrorAs(t, why, &not)
}

// TestStatusVariable is 0, 1 or a path; nothing is shown because of another value.
func TestStatusVariable(t *testing.T) {
	for _, wrong := range []string{"off", "true", "2", "a/directory"} {
		assert.ErrorContains(t, serveStatusIf(wrong), "want 0, 1 or an absolute path")
	}
	assert.NoError(t, serveStatusIf("0"))
	served.mu.Lock()
	defer served.mu.Unlock()
	assert.Nil(t, served.server)
}
