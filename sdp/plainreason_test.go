package sdp

import (
	"encoding/binary"
	"io"
	"net"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/internal/handshake"
	"github.com/gosdp/gosdp/internal/policy"
	"github.com/gosdp/gosdp/sdp/stats"
	"github.com/gosdp/gosdp/wire"
)

// TestPlainReasonOfAConnection is what the peer has answered, if it was asked.
func TestPlainReasonOfAConnection(t *testing.T) {
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	none := &settings{Policy: new(policy.Policy)}
	assert.Equal(t, stats.PlainOther, none.plainReason(a, nil))
	c, peer := rawPair(t)
	defer c.Close()
	defer peer.Close()
	for _, v := range []struct {
		set   *settings
		asked error
		is    stats.PlainReason
	}{
		{none, nil, stats.PlainNoDevice},
		{none, &handshake.NotSDPError{Err: io.EOF}, stats.PlainPeer},
		{none, &handshake.NotSDPError{Err: io.EOF, Usable: true}, stats.PlainSetupFailed},
		{none, io.ErrUnexpectedEOF, stats.PlainSetupFailed},
		{&settings{Policy: &policy.Policy{Off: true}}, nil, stats.PlainOff},
		{&settings{Policy: &policy.Policy{Network: policy.Network{Plain: true}}}, nil, stats.PlainRule},
	} {
		assert.Equal(t, v.is, v.set.plainReason(c, v.asked), "%v", v.asked)
	}
}

// unknownDevice is a Request that offers no device that there is.
func unknownDevice() string {
	hello := wire.Hello{Bufs: 64, MaxAdverts: 4, LocalRcvSz: 16 << 10, IRD: 4, ORD: 4}
	private := hello.AppendHello([]byte("\r\n\r\nSDP\x01\x0d\x01\x02\x03\x09"))
	return "MPA ID Req Frame\x40\x01" + string(binary.BigEndian.AppendUint16(nil, uint16(len(private)))) + string(private)
}

// TestPlainAcceptsAreCounted by the reason.
func TestPlainAcceptsAreCounted(t *testing.T) {
	for name, v := range map[string]struct {
		config *Config
		rules  string
		says   string // what the client sends
		wrap   bool   // the listener is another one's
		is     stats.PlainReason
	}{
		"switched off":             {config: &Config{Devices: []string{"tcp"}}, is: stats.PlainOff},
		"a rule":                   {rules: "use tcp server * 127.0.0.1:*", is: stats.PlainRule},
		"no shared memory":         {config: &Config{Devices: []string{"iwarp"}}, is: stats.PlainNoDevice},
		"a client of another kind": {config: asking(nil), says: "GET / HTTP/1.1", is: stats.PlainPeer},
		"no device in common":      {config: asking(nil), says: unknownDevice(), is: stats.PlainSetupFailed},
		"no socket":                {config: asking(nil), says: "GET / HTTP/1.1", wrap: true, is: stats.PlainOther},
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
