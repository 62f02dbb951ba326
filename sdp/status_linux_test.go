package sdp

import (
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/internal/policy"
	"github.com/gosdp/gosdp/internal/status"
	"github.com/gosdp/gosdp/internal/status/collect"
	"github.com/gosdp/gosdp/sdp/stats"
	"github.com/gosdp/gosdp/test/conntest"
)

// statusPair returns a connection of the process with itself.
func statusPair(t *testing.T, config *Config) (client, server *Conn) {
	t.Helper()
	config = overEngine(config)
	lc := ListenConfig{Config: config}
	ln, err := lc.Listen(t.Context(), "sdp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	d := Dialer{Config: config}
	c, s, err := bothEnds(ln, func(address string) (net.Conn, error) { return d.Dial("sdp", address) })
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	t.Cleanup(func() { s.Close() })
	return c.(*Conn), s.(*Conn)
}

// statusIn returns what the one program says that has its socket in dir. It has any time for that.
func statusIn(t *testing.T, dir string) (program status.Program) {
	t.Helper()
	sockets, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, sockets, 1)
	c, err := net.Dial("unix", filepath.Join(dir, sockets[0].Name()))
	require.NoError(t, err)
	defer c.Close()
	_, err = io.WriteString(c, status.CommandStatus+"\n")
	require.NoError(t, err)
	text, err := io.ReadAll(c)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &program))
	return program
}

func TestServeStatus(t *testing.T) {
	dir, err := os.MkdirTemp("", "status")
	require.NoError(t, err)
	defer os.RemoveAll(dir)
	t.Setenv(policy.StatusVariable, dir)
	stop, err := ServeStatus()
	require.NoError(t, err)
	again, err := ServeStatus() // two that ask for it share one socket
	require.NoError(t, err)
	require.NoError(t, again())
	require.NoError(t, again())
	client, server := statusPair(t, &Config{ZCopyThreshold: -1}) // with zero copy, part of a Write may arrive later
	_, err = client.Write(make([]byte, 1000))
	require.NoError(t, err)
	_, err = server.Read(make([]byte, 400))
	require.NoError(t, err)

	program := statusIn(t, dir)
	require.Equal(t, os.Getpid(), program.PID)
	var dialled, accepted *status.Conn
	for i := range program.Conns {
		switch c := &program.Conns[i]; {
		case c.Local == client.LocalAddr().String():
			dialled = c
		case c.Local == server.LocalAddr().String() && c.Remote == client.LocalAddr().String():
			accepted = c
		}
	}
	require.NotNil(t, dialled)
	require.NotNil(t, accepted)
	require.True(t, dialled.Dialled)
	require.False(t, accepted.Dialled)
	require.EqualValues(t, 1000, dialled.Sent)
	require.EqualValues(t, 1000, accepted.Received)
	require.Equal(t, 600, accepted.Unread)
	require.Positive(t, dialled.SendCredit)
	require.Positive(t, accepted.RecvCredit)
	require.Equal(t, client.Device(), dialled.Device)
	require.WithinDuration(t, program.Time, dialled.Opened, time.Minute)
	require.NoError(t, stop())
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, entries)
}

// TestSetupStats counts dials by how they went, and tells a hook.
func TestSetupStats(t *testing.T) {
	var dials []stats.Dial
	ctx := WithDialHook(t.Context(), func(e stats.Dial) { dials = append(dials, e) })
	before := SetupStats()
	client, _ := statusPair(t, nil)
	plain, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	d := Dialer{Config: overEngine(nil)}
	c, err := d.DialContext(ctx, "tcp", plain.Addr().String())
	require.NoError(t, err)
	c.Close()
	moves, err := (&Dialer{Config: overSHM(nil)}).DialContext(ctx, "tcp", plain.Addr().String())
	require.NoError(t, err)
	moves.Close()
	require.NoError(t, plain.Close())
	_, err = d.DialContext(ctx, "tcp", plain.Addr().String())
	require.Error(t, err)
	after := SetupStats()
	require.Equal(t, before.Devices[client.Device()]+2, after.Devices[client.Device()])
	require.Equal(t, before.Devices["tcp"]+1, after.Devices["tcp"])
	require.Equal(t, before.Plain[stats.PlainNoDevice]+1, after.Plain[stats.PlainNoDevice])
	require.Equal(t, before.Failed+1, after.Failed)
	require.Len(t, dials, 3, "the Dial without the hook is not one")
	require.Positive(t, dials[0].Duration)
	require.Equal(t, stats.Dial{Network: "tcp", Address: plain.Addr().String(), Duration: dials[0].Duration, Plain: stats.PlainNoDevice}, dials[0])
	require.Equal(t, "tcp", dials[1].Device)
	require.Error(t, dials[2].Err)
}

func TestEventsOfAConnection(t *testing.T) {
	var text conntest.Log
	log := slog.New(slog.NewTextHandler(&text, &slog.HandlerOptions{Level: slog.LevelDebug}))
	client, server := statusPair(t, &Config{Logger: log})
	_, err := client.Write([]byte("12345"))
	require.NoError(t, err)
	_, err = server.Read(make([]byte, 5))
	require.NoError(t, err)
	require.NoError(t, client.Close())
	require.NoError(t, server.Close())
	require.NoError(t, WaitClosed(t.Context()))
	up, ended := 0, 0
	for _, line := range text.Lines() {
		switch {
		case strings.Contains(line, `level=DEBUG msg="sdp: connection established"`):
			up++
		case strings.Contains(line, `level=DEBUG msg="sdp: connection closed"`):
			ended++
			require.Regexp(t, "sent=[05] received=[05]", line)
		}
	}
	require.Equal(t, 2, up, "%v", text.Lines())
	require.Equal(t, 2, ended, "%v", text.Lines())
}

// TestNoStatusUnlessAsked requires that nothing is served and no file made by default.
func TestNoStatusUnlessAsked(t *testing.T) {
	if os.Getenv(policy.StatusVariable) != "" {
		t.Skip("missing: an environment without SDP_STATUS")
	}
	statusPair(t, nil)
	programs, _ := collect.Collect([]string{status.Dir("", os.Geteuid())})
	for _, p := range programs {
		require.NotEqual(t, os.Getpid(), p.PID)
	}
}
