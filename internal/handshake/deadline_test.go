package handshake

import (
	"io"
	"net"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/internal/handshake/handshaketest"
	"github.com/gosdp/gosdp/wire"
)

// TestDeadlinesSurvive on a socket, if the client speaks plain TCP.
func TestDeadlinesSurvive(t *testing.T) {
	for _, v := range []struct {
		name, sends string
		meets       bool
	}{
		{"bytes", "GET /", false},
		{"bytes, where clients are met", "GET /", true},
		{"silence", "", false},
		{"silence, where clients are met", "", true},
	} {
		t.Run(v.name, func(t *testing.T) {
			server, client := handshaketest.TCPPair(t)
			_, err := io.WriteString(client, v.sends)
			require.NoError(t, err)
			cfg := testConfig()
			if v.sends == "" {
				cfg.HandshakeTimeout = time.Millisecond
			}
			if v.meets {
				cfg.Meet = (&meeting{plain: server}).Meet
			}
			require.NoError(t, server.SetDeadline(time.Unix(1, 0)))
			up, err := Serve(t.Context(), server, cfg)
			require.NoError(t, err)
			require.Equal(t, net.Conn(server), up.Conn)
			_, err = up.Conn.Read(make([]byte, 1))
			assert.ErrorIs(t, err, os.ErrDeadlineExceeded)
			_, err = up.Conn.Write([]byte("x"))
			assert.ErrorIs(t, err, os.ErrDeadlineExceeded)
		})
	}
}

// counting counts how often its deadlines are set.
type counting struct {
	net.Conn
	n atomic.Int32
}

func (c *counting) SetDeadline(t time.Time) error {
	c.n.Add(1)
	return c.Conn.SetDeadline(t)
}

// TestDeadlinesAreNotSet on a connection that is no socket, if the client speaks plain TCP or has to
// because of its Request.
func TestDeadlinesAreNotSet(t *testing.T) {
	verbs := handshaketest.Offers()
	verbs.Devices = []wire.Device{wire.DeviceVerbs}
	for _, sends := range []string{"GET /", handshaketest.Request(t, verbs, handshaketest.Hello())} {
		server, client := handshaketest.TCPPair(t)
		_, err := io.WriteString(client, sends)
		require.NoError(t, err)
		c := &counting{Conn: server}
		up, err := Serve(t.Context(), c, testConfig())
		require.NoError(t, err)
		assert.Nil(t, up.QP)
		assert.Zero(t, c.n.Load(), "%q", sends)
	}
}

// TestDeadlineOfTheProgramEndsTheLook at a connection that is no socket, and the program gets it.
func TestDeadlineOfTheProgramEndsTheLook(t *testing.T) {
	server, _ := handshaketest.TCPPair(t)
	require.NoError(t, server.SetDeadline(time.Unix(1, 0)))
	up, err := Serve(t.Context(), struct{ net.Conn }{server}, testConfig())
	require.NoError(t, err)
	assert.Nil(t, up.QP)
	_, err = up.Conn.Read(make([]byte, 1))
	assert.ErrorIs(t, err, os.ErrDeadlineExceeded)
}

// TestQueuePairHasNoDeadlineOfTheProgram: a queue pair takes a deadline for a wake-up.
func TestQueuePairHasNoDeadlineOfTheProgram(t *testing.T) {
	server, client := handshaketest.TCPPair(t)
	served, dialled := &counting{Conn: server}, &counting{Conn: client}
	got := make(chan *Connection)
	go func() {
		up, err := Serve(t.Context(), served, testConfig())
		assert.NoError(t, err)
		got <- up
	}()
	cfg := testConfig()
	up, err := (&Client{Config: &cfg}).Connect(t.Context(), dialled)
	require.NoError(t, err)
	defer up.QP.Abort()
	handshaketest.Send(t, up.QP, handshaketest.Stay())
	at := <-got
	require.NotNil(t, at)
	defer at.Discard()
	assert.EqualValues(t, 1, served.n.Load())
	assert.EqualValues(t, 1, dialled.n.Load())
}
