package sdp

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestBusyPollIsSet: the Config goes before the environment, and what makes no sense is an
// error that names the variable.
func TestBusyPollIsSet(t *testing.T) {
	for _, v := range []struct {
		environment string
		config      time.Duration
		want        time.Duration
	}{
		{"", 0, 0},
		{"0", 0, -1},
		{"50us", 0, 50 * time.Microsecond},
		{"1s", time.Millisecond, time.Millisecond},
		{"50us", -1, -1},
		{"0", time.Millisecond, time.Millisecond},
	} {
		t.Setenv(busyPollVariable, v.environment)
		got, err := (&Config{BusyPoll: v.config}).busyPoll()
		require.NoError(t, err)
		assert.Equal(t, v.want, got, "%+v", v)
	}
	for _, bad := range []string{"-1us", "x", "50", "99999999999"} {
		t.Setenv(busyPollVariable, bad)
		_, err := Dial("tcp", "127.0.0.1:1")
		assert.ErrorContains(t, err, "SDP_BUSY_POLL="+bad)
		_, err = Listen("tcp", "127.0.0.1:0")
		assert.ErrorContains(t, err, "SDP_BUSY_POLL="+bad)
	}
}

func TestBusyPollIsTheDevices(t *testing.T) {
	_, _, client, server := countedWith(t, tuning{busyPoll: time.Millisecond})
	assert.Equal(t, time.Millisecond, client.busyPoll)
	assert.Equal(t, time.Millisecond, server.busyPoll)
}
