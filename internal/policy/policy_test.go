package policy

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/internal/rules"
)

// TestDemandedDevices: a policy of network sdp, or of a rule that asks for SDP, has an error if there is no device. One of
// network tcp has none.
func TestDemandedDevices(t *testing.T) {
	setRules(t, "\nuse sdp client * 192.0.2.0/24:*\nuse tcp client * *:*")
	t.Setenv(devicesVariable, "tcp")
	const why = "no RDMA device can be used: verbs: not in SDP_DEVICES=tcp; iwarp: not in SDP_DEVICES=tcp"
	for _, v := range []struct {
		network, address string
		err              string
	}{
		{"tcp", "198.51.100.1:80", ""},
		{"tcp4", "192.0.2.1:80", "requires SDP: " + why},
		{"sdp", "198.51.100.1:80", why},
	} {
		n, err := ParseNetwork(v.network)
		require.NoError(t, err)
		n, known := (*Options)(nil).Ruled(n, rules.Client, v.address)
		require.True(t, known)
		p, err := New(nil, n, n.Only)
		require.NoError(t, err)
		assert.True(t, p.Off)
		if err := p.Err(); v.err != "" {
			assert.ErrorContains(t, err, v.err, "%+v", v)
			_, ruled := err.(*DemandedError)
			assert.Equal(t, n.Rule != nil, ruled, "%+v", v)
		} else {
			assert.NoError(t, err, "%+v", v)
		}
	}
}

// TestRuleSaysTCP: the policy has no device, and does not ask.
func TestRuleSaysTCP(t *testing.T) {
	setRules(t, "use tcp client * *:*")
	t.Setenv(devicesVariable, "shm,iwarp")
	t.Setenv(peersVariable, "127.0.0.0/8")
	var none *Options
	p, err := New(none, TCP, false)
	require.NoError(t, err)
	assert.True(t, p.Asks())
	n, known := none.Ruled(TCP, rules.Client, "127.0.0.1:80")
	require.True(t, known)
	assert.Equal(t, "line 1: use tcp client * *:*", n.Why())
	p, err = New(none, n, false)
	require.NoError(t, err)
	assert.Empty(t, p.Devices)
	assert.False(t, p.SHM)
	assert.False(t, p.Asks())
	assert.False(t, p.Off, "the list of devices has some")
	assert.NoError(t, p.Err())
	n, _ = (&Options{Devices: []string{"iwarp"}}).Ruled(TCP, rules.Client, "127.0.0.1:80")
	assert.Equal(t, TCP, n, "the program has decided")
}

// TestOptionsOfAPolicy are the program's, or the defaults.
func TestOptionsOfAPolicy(t *testing.T) {
	p, err := New(nil, TCP, false)
	require.NoError(t, err)
	assert.Equal(t, []time.Duration{time.Second, time.Second, time.Minute, 500 * time.Millisecond, 5 * time.Second},
		[]time.Duration{p.ReplyTimeout, p.MeetTimeout, p.PlainTTL, p.StepUpTimeout, p.HandshakeTimeout})
	p, err = New(&Options{
		ReplyTimeout: 1, PlainTTL: 2, StepUpTimeout: 3, HandshakeTimeout: 4,
		StepUpThroughProxies: true, CRC: true, ReadBuffer: 5, ZCopyThreshold: 6, BusyPoll: 7,
	}, TCP, false)
	require.NoError(t, err)
	assert.Equal(t, []time.Duration{1, 1, 2, 3, 4, 7},
		[]time.Duration{p.ReplyTimeout, p.MeetTimeout, p.PlainTTL, p.StepUpTimeout, p.HandshakeTimeout, p.BusyPoll})
	assert.True(t, p.ThroughProxies)
	assert.True(t, p.CRC)
	assert.Equal(t, 5, p.ReadBuffer)
	assert.Equal(t, 6, p.ZCopyThreshold)
}
