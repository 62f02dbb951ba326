package sdp

import (
	"encoding/json"
	"io"
	"net"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/internal/handshake"
	"github.com/gosdp/gosdp/internal/policy"
)

func TestPlainReasonNames(t *testing.T) {
	for r, want := range map[PlainReason]string{
		PlainOther: "other", PlainPeer: "plain_peer", PlainHost: "other_host",
		PlainSetupFailed: "setup_failed", PlainRule: "rule", PlainOff: "off", PlainNoDevice: "no_device", plainReasons: "other",
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
	none := &settings{Policy: new(policy.Policy)}
	assert.Equal(t, PlainOther, none.plainReason(a, nil))
	c, peer := rawPair(t)
	defer c.Close()
	defer peer.Close()
	for _, v := range []struct {
		set   *settings
		asked error
		is    PlainReason
	}{
		{none, nil, PlainNoDevice},
		{none, &handshake.NotSDPError{Err: io.EOF}, PlainPeer},
		{none, &handshake.NotSDPError{Err: io.EOF, Usable: true}, PlainSetupFailed},
		{none, io.ErrUnexpectedEOF, PlainSetupFailed},
		{&settings{Policy: &policy.Policy{Off: true}}, nil, PlainOff},
		{&settings{Policy: &policy.Policy{Network: policy.Network{Plain: true}}}, nil, PlainRule},
	} {
		assert.Equal(t, v.is, v.set.plainReason(c, v.asked), "%v", v.asked)
	}
}

// TestFailedHandshakeIsKnown to the caller that counts Dials.
func TestFailedHandshakeIsKnown(t *testing.T) {
	address, _ := serve(t, func(c *net.TCPConn) {
		io.WriteString(c, "another protocol")
		io.Copy(io.Discard, c)
	})
	var events []DialEvent
	defer OnDial(func(e DialEvent) { events = append(events, e) })()
	c, err := (&Dialer{Config: asking(nil)}).Dial("tcp", address)
	require.NoError(t, err)
	defer c.Close()
	require.Len(t, events, 1)
	assert.Equal(t, DialEvent{Network: "tcp", Address: address, Duration: events[0].Duration, Plain: PlainPeer, Cause: events[0].Cause}, events[0])
	assert.ErrorContains(t, events[0].Cause, `peer at `+address+` does not speak SDP: answered "another protocol"`)
}

// TestPlainAcceptsAreCounted by the reason.
func TestPlainAcceptsAreCounted(t *testing.T) {
	for name, v := range map[string]struct {
		config *Config
		rules  string
		says   string // what the client sends
		wrap   bool   // the listener is another one's
		is     PlainReason
	}{
		"switched off":             {config: &Config{Devices: []string{"tcp"}}, is: PlainOff},
		"a rule":                   {rules: "use tcp server * 127.0.0.1:*", is: PlainRule},
		"no shared memory":         {config: &Config{Devices: []string{"iwarp"}}, is: PlainNoDevice},
		"a client of another kind": {config: asking(nil), says: "GET / HTTP/1.1", is: PlainPeer},
		"no device in common":      {config: asking(nil), says: string(hostileFrame("MPA ID Req Frame", 0x40, 1, hostileOffers([]byte{1, 2, 3, 9})...)), is: PlainSetupFailed},
		"no socket":                {config: asking(nil), says: "GET / HTTP/1.1", wrap: true, is: PlainOther},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(devicesVariable, "")
			if v.rules != "" {
				setRules(t, v.rules, "127.0.0.1:0")
			}
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			if v.wrap {
				ln = bareListener{ln}
			}
			l, err := NewListener(ln, v.config)
			require.NoError(t, err)
			defer l.Close()
			before := SetupStats()
			accepted := accept1(l)
			c, err := net.Dial("tcp", l.Addr().String())
			require.NoError(t, err)
			defer c.Close()
			_, err = io.WriteString(c, v.says)
			require.NoError(t, err)
			s := <-accepted
			require.NotNil(t, s)
			defer s.Close()
			_, ours := s.(*Conn)
			require.False(t, ours)
			before.PlainAccepts[v.is]++
			assert.Equal(t, before, SetupStats())
		})
	}
}
