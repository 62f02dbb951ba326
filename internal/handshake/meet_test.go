package handshake

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/internal/handshake/handshaketest"
	"github.com/gosdp/gosdp/wire"
)

// meeting is a client that meets the server at a certain attempt; 0: never.
type meeting struct {
	at     int32
	fails  error
	met    net.Conn
	plain  net.Conn
	tried  atomic.Int32
	trying atomic.Bool
}

func (m *meeting) Meet(net.Conn) Meeting { return m }

func (m *meeting) Try() (net.Conn, error) {
	if m.trying.Swap(true) {
		panic("two goroutines try")
	}
	defer m.trying.Store(false)
	switch n := m.tried.Add(1); {
	case m.fails != nil:
		return nil, m.fails
	case n == m.at:
		return m.met, nil
	}
	return nil, nil
}

func (m *meeting) Plain() net.Conn { return m.plain }

// meetConfig is that of a server that serves only clients that it meets.
func meetConfig(m *meeting) Config {
	cfg := testConfig()
	cfg.Devices, cfg.SDPOnly, cfg.Meet = nil, true, m.Meet
	return cfg
}

// TestClientIsMet although it sends nothing on the connection, with and without a device.
func TestClientIsMet(t *testing.T) {
	for _, at := range []int32{1, 10} {
		for _, devices := range [][]wire.Device{nil, {wire.DeviceIWARP}} {
			server, _ := handshaketest.TCPPair(t)
			m := &meeting{at: at, met: struct{ net.Conn }{server}}
			cfg := meetConfig(m)
			cfg.Devices = devices
			up, err := Serve(t.Context(), server, cfg)
			require.NoError(t, err)
			assert.True(t, up.Met)
			assert.Nil(t, up.QP)
			assert.Equal(t, m.met, up.Conn)
			assert.Equal(t, at, m.tried.Load())
		}
	}
}

// TestBytesAfterTheMeeting: a client that has met the server may write before the server has noticed.
func TestBytesAfterTheMeeting(t *testing.T) {
	server, client := handshaketest.TCPPair(t)
	_, err := client.Write([]byte("hello"))
	require.NoError(t, err)
	require.Eventually(t, func() bool { return first(server) == isPlain }, time.Minute, time.Millisecond)
	m := &meeting{at: 1, met: server}
	up, err := Serve(t.Context(), server, meetConfig(m))
	require.NoError(t, err)
	assert.True(t, up.Met)
	b := make([]byte, 5)
	_, err = up.Conn.Read(b)
	require.NoError(t, err)
	assert.Equal(t, "hello", string(b))
}

// TestRequestEndsTheMeeting: a client that sends a Request wants a device.
func TestRequestEndsTheMeeting(t *testing.T) {
	m := new(meeting)
	cfg := meetConfig(m)
	cfg.Devices = []wire.Device{wire.DeviceIWARP}
	server, client := handshaketest.TCPPair(t)
	served := make(chan *Connection, 1)
	go func() {
		up, err := Serve(t.Context(), server, cfg)
		assert.NoError(t, err)
		served <- up
	}()
	require.Eventually(t, func() bool { return m.tried.Load() > 2 }, time.Minute, time.Millisecond)
	mine := testConfig()
	mine.SDPOnly = true
	up, err := (&Client{Config: &mine}).Connect(t.Context(), client)
	require.NoError(t, err)
	defer up.QP.Abort()
	stay := handshaketest.Stay()
	handshaketest.Send(t, up.QP, stay)
	at := <-served
	require.NotNil(t, at)
	assert.False(t, at.Met)
	assert.Equal(t, "iwarp", at.Device)
	at.Discard()
}

// TestClientThatIsNotMet is closed: when the time is over, when its bytes are no Request, or at once if
// the meeting has failed. One that sends a Request is told that there is no device.
func TestClientThatIsNotMet(t *testing.T) {
	failed := errors.New("another user")
	for _, v := range []struct {
		name, sends string
		fails       error
		within      time.Duration
		says        string
	}{
		{"silent", "", nil, 20 * time.Millisecond, "timed out"},
		{"other bytes", "GET", nil, time.Hour, "does not speak SDP"},
		{"failed", "", failed, time.Hour, "another user"},
		{"a Request", handshaketest.Request(t, handshaketest.Offers(), handshaketest.Hello()), nil, time.Hour, "no device in common"},
	} {
		t.Run(v.name, func(t *testing.T) {
			server, client := handshaketest.TCPPair(t)
			_, err := client.Write([]byte(v.sends))
			require.NoError(t, err)
			m := &meeting{fails: v.fails}
			cfg := meetConfig(m)
			cfg.HandshakeTimeout = v.within
			_, err = Serve(t.Context(), server, cfg)
			require.ErrorContains(t, err, v.says)
			assert.NoError(t, client.SetReadDeadline(time.Now().Add(time.Minute)))
			for err = nil; err == nil; {
				_, err = client.Read(make([]byte, 64))
			}
			var late net.Error
			assert.False(t, errors.As(err, &late) && late.Timeout(), "it is closed")
		})
	}
}

// TestClientsOfBothKindsAreMet has a server that also serves plain clients. The program gets one that is not met
// from the Meeting, too.
func TestClientsOfBothKindsAreMet(t *testing.T) {
	for _, at := range []int32{0, 10} {
		server, client := handshaketest.TCPPair(t)
		m := &meeting{at: at, met: struct{ net.Conn }{server}, plain: struct{ net.Conn }{client}}
		cfg := meetConfig(m)
		cfg.Devices, cfg.SDPOnly = []wire.Device{wire.DeviceIWARP}, false
		want := m.met
		if at == 0 {
			_, err := client.Write([]byte("GET "))
			require.NoError(t, err)
			want = m.plain
		}
		up, err := Serve(t.Context(), server, cfg)
		require.NoError(t, err)
		assert.True(t, up.Met)
		assert.Equal(t, want, up.Conn)
	}
}

// TestNobodyIsMetUnasked: a client that may not be asked is plain, whatever Meet would say.
func TestNobodyIsMetUnasked(t *testing.T) {
	server, _ := handshaketest.TCPPair(t)
	cfg := meetConfig(&meeting{at: 1, met: server})
	cfg.SDPOnly = false
	h := NewServer(cfg).Accepted(server)
	up := h.Plain()
	require.NotNil(t, up)
	assert.False(t, up.Met)
	assert.Same(t, server, up.Conn)
}

// TestMeetingEndsWithTheContext.
func TestMeetingEndsWithTheContext(t *testing.T) {
	server, _ := handshaketest.TCPPair(t)
	m := new(meeting)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := Serve(ctx, server, meetConfig(m))
		done <- err
	}()
	require.Eventually(t, func() bool { return m.tried.Load() > 2 }, time.Minute, time.Millisecond)
	cancel()
	require.Error(t, <-done)
}
