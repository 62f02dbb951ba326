package sdp

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/internal/events"
	"github.com/gosdp/gosdp/internal/status"
	"github.com/gosdp/gosdp/internal/status/collect"
	"github.com/gosdp/gosdp/rdma"
)

// statusPair returns a connection of the process with itself.
func statusPair(t *testing.T, config *Config) (client, server *conn) {
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
	return engineOf(t, c), engineOf(t, s)
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
	var one statusServer
	stop, err := one.serve(dir)
	require.NoError(t, err)
	again, err := one.serve(dir) // two that ask for it share one socket
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

// TestSetupStats counts dials by how they went.
func TestSetupStats(t *testing.T) {
	MeasureDials(true)
	defer MeasureDials(false)
	var dials []DialEvent
	defer OnDial(func(e DialEvent) { dials = append(dials, e) })()
	before := SetupStats()
	client, _ := statusPair(t, nil)
	plain, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	d := Dialer{Config: overEngine(nil)}
	c, err := d.Dial("tcp", plain.Addr().String())
	require.NoError(t, err)
	c.Close()
	moves, err := (&Dialer{Config: overSHM(nil)}).Dial("tcp", plain.Addr().String())
	require.NoError(t, err)
	moves.Close()
	require.NoError(t, plain.Close())
	_, err = d.Dial("tcp", plain.Addr().String())
	require.Error(t, err)
	after := SetupStats()
	require.Equal(t, before.Devices[client.Device()]+2, after.Devices[client.Device()])
	require.Equal(t, before.Devices["tcp"]+1, after.Devices["tcp"])
	require.Equal(t, before.Plain[PlainNoDevice]+1, after.Plain[PlainNoDevice])
	require.Equal(t, before.Failed+1, after.Failed)
	require.Equal(t, before.DialTimes.Count+2, after.DialTimes.Count)
	require.Equal(t, before.PlainTimes.Count+1, after.PlainTimes.Count)
	require.Greater(t, after.DialTimes.Sum, before.DialTimes.Sum)
	require.Len(t, dials, 4)
	require.Equal(t, client.Device(), dials[0].Device)
	require.Equal(t, DialEvent{Network: "tcp", Address: plain.Addr().String(), Duration: dials[1].Duration, Plain: PlainNoDevice}, dials[1])
	require.Equal(t, "tcp", dials[2].Device)
	require.Error(t, dials[3].Err)
	after.DialTimes.Buckets[0].Count = 1 << 40
	require.Less(t, SetupStats().DialTimes.Buckets[0].Count, uint64(1<<40), "a caller can change the statistics")
}

// TestNothingIsMeasuredUnlessAsked has a Dial that SetupStats must not count.
func TestNothingIsMeasuredUnlessAsked(t *testing.T) {
	calls := 0
	remove := OnDial(func(DialEvent) { calls++ })
	MeasureDials(true)
	MeasureDials(false)
	statusPair(t, nil)
	require.Equal(t, 1, calls, "OnDial ends with MeasureDials")
	remove()
	before := SetupStats()
	statusPair(t, nil)
	after := SetupStats()
	require.Equal(t, 1, calls)
	require.Equal(t, before.DialTimes, after.DialTimes)
}

func TestHistogram(t *testing.T) {
	var h times
	for _, d := range []time.Duration{0, 50 * time.Microsecond, 51 * time.Microsecond, 5 * time.Second, 6 * time.Second} {
		h.add(d)
	}
	got := h.histogram()
	require.EqualValues(t, 5, got.Count)
	require.Equal(t, 11*time.Second+101*time.Microsecond, got.Sum)
	require.Equal(t, Bucket{50 * time.Microsecond, 2}, got.Buckets[0])
	require.Equal(t, Bucket{100 * time.Microsecond, 3}, got.Buckets[1])
	require.Equal(t, Bucket{5 * time.Second, 4}, got.Buckets[len(got.Buckets)-1])
}

// TestStatsDoNotHoldConnectionsUp has a connection whose lock is held while the statistics are
// collected: other connections open and close all the same.
func TestStatsDoNotHoldConnectionsUp(t *testing.T) {
	client, _ := statusPair(t, nil)
	client.mu.Lock()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		Stats()
		Connections()
	}()
	require.Eventually(t, func() bool {
		stack := make([]byte, 1<<20)
		return strings.Contains(string(stack[:runtime.Stack(stack, true)]), "connTable).totals")
	}, soon, time.Millisecond)
	free := make(chan struct{})
	go func() {
		openConns.mu.Lock()
		defer openConns.mu.Unlock()
		close(free)
	}()
	select {
	case <-free:
	case <-time.After(soon):
		t.Error("the table of connections is locked while one of them is")
	}
	client.mu.Unlock()
	<-ended
}

// eventLog is a log that tests can read.
type eventLog struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *eventLog) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *eventLog) lines() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Split(strings.TrimSpace(l.text.String()), "\n")
}

func TestEventsOfAConnection(t *testing.T) {
	var text eventLog
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
	for _, line := range text.lines() {
		switch {
		case strings.Contains(line, `level=DEBUG msg="sdp: connection established"`):
			up++
		case strings.Contains(line, `level=DEBUG msg="sdp: connection closed"`):
			ended++
			require.Regexp(t, "sent=[05] received=[05]", line)
		}
	}
	require.Equal(t, 2, up, "%v", text.lines())
	require.Equal(t, 2, ended, "%v", text.lines())
}

// TestViolationIsAWarning once, however often a host breaks a rule.
func TestViolationIsAWarning(t *testing.T) {
	violations = events.Limiter{}
	var text eventLog
	for range 3 {
		client, _ := statusPair(t, &Config{Logger: slog.New(slog.NewTextHandler(&text, nil))})
		client.mu.Lock()
		client.violatedLocked(errMonitorData)
		client.mu.Unlock()
		client.Close()
	}
	require.NoError(t, WaitClosed(t.Context()))
	const warning = `level=WARN msg="sdp: protocol violation by peer"`
	require.Equal(t, 1, strings.Count(strings.Join(text.lines(), "\n"), warning))
}

// TestLossIsNoWarning: a peer that dies during a transfer, or that reports a violation by this
// end, has not broken a rule.
func TestLossIsNoWarning(t *testing.T) {
	for name, end := range map[string]func(*conn){
		"a Read is aborted after the end of the channel": func(c *conn) {
			c.receiveEndedLocked(io.EOF)
			newZeroCopy(c, 1).abortToReclaimReleasing()
		},
		"a Terminate": func(c *conn) { c.receiveEndedLocked(&rdma.TerminateError{}) },
	} {
		t.Run(name, func(t *testing.T) {
			var text eventLog
			client, _ := statusPair(t, &Config{Logger: slog.New(slog.NewTextHandler(&text, nil))})
			client.mu.Lock()
			end(client)
			client.mu.Unlock()
			client.Close()
			require.NoError(t, WaitClosed(t.Context()))
			require.NotContains(t, strings.Join(text.lines(), "\n"), "protocol violation")
		})
	}
}

// TestStatusVariable is 0, 1 or a path; nothing is shown because of another value.
func TestStatusVariable(t *testing.T) {
	for _, wrong := range []string{"off", "true", "2", "a/directory"} {
		require.ErrorContains(t, serveStatusIf(wrong), "want 0, 1 or an absolute path")
	}
	require.NoError(t, serveStatusIf("0"))
	served.mu.Lock()
	defer served.mu.Unlock()
	require.Nil(t, served.server)
}

// TestNoStatusUnlessAsked requires that nothing is served and no file made by default.
func TestNoStatusUnlessAsked(t *testing.T) {
	if os.Getenv(statusVariable) != "" {
		t.Skip("missing: an environment without SDP_STATUS")
	}
	statusPair(t, nil)
	programs, _ := collect.Collect([]string{status.Dir("", os.Geteuid())})
	for _, p := range programs {
		require.NotEqual(t, os.Getpid(), p.PID)
	}
}
