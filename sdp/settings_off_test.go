package sdp

import (
	"net"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestSDPSwitchedOff(t *testing.T) {
	t.Setenv(devicesVariable, "tcp")
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	address := ln.Addr().String()

	c, err := Dial("tcp", address)
	require.NoError(t, err)
	defer c.Close()
	assert.IsType(t, &net.TCPConn{}, c)
	s, err := ln.Accept()
	require.NoError(t, err)
	c.Close()
	n, _ := s.Read(make([]byte, 1))
	assert.Zero(t, n, "no probe was sent")
	s.Close()

	const why = "no RDMA device can be used: verbs: not in SDP_DEVICES=tcp; iwarp: not in SDP_DEVICES=tcp"
	_, err = Dial("sdp", address)
	assert.EqualError(t, err, "dial sdp: "+why)
	_, err = Listen("sdp", "127.0.0.1:0")
	assert.EqualError(t, err, "listen sdp: "+why)
}

// TestMistakesInSettings fail Dial and Listen.
func TestMistakesInSettings(t *testing.T) {
	for _, v := range []struct {
		variable, value string
		config          *Config
		err             string
	}{
		{variable: devicesVariable, value: "iwarp,ib0", err: `SDP_DEVICES=iwarp,ib0: unknown device "ib0"`},
		{variable: devicesVariable, value: "iwarp,", err: `SDP_DEVICES=iwarp,: unknown device ""`},
		{variable: devicesVariable, value: "iwarp,iwarp", err: `SDP_DEVICES=iwarp,iwarp: device "iwarp" is listed twice`},
		{variable: devicesVariable, value: "shm,iwarp,shm", err: `SDP_DEVICES=shm,iwarp,shm: device "shm" is listed twice`},
		{variable: devicesVariable, value: "iwarp,tcp", err: `SDP_DEVICES=iwarp,tcp: "tcp" disables SDP and cannot be combined with devices`},
		{variable: devicesVariable, value: "x", config: &Config{Devices: []string{"iwarp"}}, err: `SDP_DEVICES=x: unknown device "x"`},
		{variable: devicesVariable, config: &Config{Devices: []string{"ib0"}}, err: `Config.Devices: unknown device "ib0"`},
		{variable: peersVariable, value: "ten", err: `SDP_PEERS=ten: "ten" is neither an address nor a prefix`},
		{variable: busyPollVariable, value: "50", err: "SDP_BUSY_POLL=50: not a time, such as 10s or 50us"},
		{variable: thresholdVariable, value: "1MB", err: "SDP_ZCOPY_THRESHOLD=1MB: not a number of bytes, such as 512M"},
		{variable: memoryVariable, value: "63K", err: "SDP_MEMORY=63K: must be at least 64K"},
		{variable: shmDirVariable, value: "run/sdp", err: "SDP_SHM_DIR=run/sdp: not an absolute path"},
		{variable: usersVariable, value: "www-data", err: `SDP_PEER_UIDS=www-data: "www-data" is not the number of a user`},
		{variable: handshakeVariable, value: "0", err: "SDP_HANDSHAKE_TIMEOUT=0: must be positive"},
	} {
		t.Run(v.err, func(t *testing.T) {
			t.Setenv(v.variable, v.value)
			_, err := (&Dialer{Config: v.config}).Dial("tcp", "127.0.0.1:1")
			assert.EqualError(t, err, "dial tcp: "+v.err)
			_, err = (&ListenConfig{Config: v.config}).Listen(t.Context(), "sdp", "127.0.0.1:0")
			assert.EqualError(t, err, "listen sdp: "+v.err)
		})
	}
}
