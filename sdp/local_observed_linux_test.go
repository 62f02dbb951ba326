package sdp

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/internal/status"
	"github.com/gosdp/gosdp/test/conntest"
)

// TestDumpOfALocalConnection has what it carries on TCP and in shared memory, by every method.
func TestDumpOfALocalConnection(t *testing.T) {
	c, s := localPair(t, "tcp", nil)
	var f dumpFile
	d := startDump(t, &f, fromEnd(c))
	require.NotNil(t, c.carrier.Dumped().Load())
	require.Nil(t, s.carrier.Dumped().Load())
	var there, back bytes.Buffer
	for range 60 {
		exchange(t, c, s)
		there.WriteString("line\n")
		back.WriteString("line\n")
	}
	big := random(300_000)
	sameBytes(t, c, s, big)
	there.Write(big)
	sameBytes(t, s, c, big)
	back.Write(big)

	var reading sync.WaitGroup
	reading.Go(func() {
		_, err := io.Copy(&there, struct{ io.Reader }{s})
		assert.NoError(t, err)
	})
	_, err := c.WriteBuffers(&net.Buffers{[]byte("one"), nil, []byte("two")})
	require.NoError(t, err)
	_, err = c.ReadFrom(strings.NewReader(strings.Repeat("from", 1000)))
	require.NoError(t, err)
	require.NoError(t, c.CloseWrite())
	reading.Wait()
	_, err = s.Write([]byte("the end"))
	require.NoError(t, err)
	require.NoError(t, s.CloseWrite())
	_, err = c.WriteTo(&back)
	require.NoError(t, err)
	require.NoError(t, c.Close())
	require.NoError(t, d.Stop())
	sent, received, flags := streams(t, f.bytes())
	require.True(t, bytes.Equal(there.Bytes(), sent), "%d bytes sent, %d in the file", there.Len(), len(sent))
	require.True(t, bytes.Equal(back.Bytes(), received), "%d bytes received, %d in the file", back.Len(), len(received))
	assert.EqualValues(t, 1, flags[0]&1, "no FIN of this end")
	assert.EqualValues(t, 1, flags[1]&1, "no FIN of the peer")
	assert.Nil(t, c.carrier.Dumped().Load(), "a closed connection keeps its stream")
}

// TestDumpOfALocalReset: a Write that fails is not in the dump.
func TestDumpOfALocalReset(t *testing.T) {
	for moment, bring := range moments {
		t.Run(moment, func(t *testing.T) {
			c, s := localPair(t, "tcp", nil)
			bring(t, c, s)
			var f dumpFile
			d := startDump(t, &f, fromEnd(c))
			require.NoError(t, s.SetLinger(0))
			require.NoError(t, s.Close())
			require.ErrorIs(t, readOne(c), syscall.ECONNRESET)
			require.ErrorIs(t, writeOne(c), syscall.EPIPE)
			require.NoError(t, d.Stop())
			sent, received, flags := streams(t, f.bytes())
			assert.Empty(t, sent)
			assert.Empty(t, received)
			assert.NotZero(t, flags[1]&4, "RST of the peer")
		})
	}
}

// TestStatusOfALocalConnection is what operators see of it.
func TestStatusOfALocalConnection(t *testing.T) {
	var text conntest.Log
	log := slog.New(slog.NewTextHandler(&text, &slog.HandlerOptions{Level: slog.LevelDebug}))
	c, s := localPair(t, "tcp", &Config{Logger: log})
	listed := func() (dialled, accepted *status.Conn) {
		var b bytes.Buffer
		require.NoError(t, WriteStatus(&b))
		var p status.Program
		require.NoError(t, json.Unmarshal(b.Bytes(), &p))
		for i := range p.Conns {
			switch k := &p.Conns[i]; k.Local {
			case c.LocalAddr().String():
				dialled = k
			case s.LocalAddr().String():
				if k.Remote == c.LocalAddr().String() {
					accepted = k
				}
			}
		}
		require.NotNil(t, dialled)
		require.NotNil(t, accepted)
		return dialled, accepted
	}
	dialled, accepted := listed()
	assert.True(t, dialled.Dialled)
	assert.False(t, accepted.Dialled)
	for _, k := range []*status.Conn{dialled, accepted} {
		assert.Equal(t, "tcp", k.Device)
		assert.Equal(t, "socket", k.Mode)
		assert.Equal(t, "too little traffic", k.OnTCP)
		assert.Zero(t, k.Sent+k.Received+k.Moves)
	}
	lines := intoRing(t, c, s)
	if !restless {
		_, err := c.Write([]byte("unread"))
		require.NoError(t, err)
		dialled, accepted = listed()
		for _, k := range []*status.Conn{dialled, accepted} {
			assert.Equal(t, "shm", k.Device)
			assert.Equal(t, "ring", k.Mode)
			assert.Empty(t, k.OnTCP)
			assert.EqualValues(t, 1, k.Moves)
		}
		assert.EqualValues(t, 5*lines+6, dialled.Sent)
		assert.EqualValues(t, 5*lines, accepted.Received)
		assert.Equal(t, 6, accepted.Unread)
		_, err = io.ReadFull(s, make([]byte, 6))
		require.NoError(t, err)
	}
	require.NoError(t, c.Close())
	require.NoError(t, s.Close())
	for _, k := range Connections() {
		assert.NotEqual(t, c.LocalAddr().String(), k.Local.String())
	}
	events := strings.Join(text.Lines(), "\n")
	assert.Equal(t, 2, strings.Count(events, `msg="sdp: connection established"`), "%s", events)
	assert.Equal(t, 2, strings.Count(events, `msg="sdp: connection closed"`), "%s", events)
	assert.Contains(t, events, "device=tcp")
}
