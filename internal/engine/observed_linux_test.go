package engine

import (
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/internal/observe"
	"github.com/gosdp/gosdp/rdma"
	"github.com/gosdp/gosdp/test/conntest"
)

// loggedPair is pair with a Logger, on a host of this machine.
func loggedPair(t *testing.T, log *slog.Logger, host string) (client, server *Conn) {
	t.Helper()
	config := &Config{Logger: log}
	ln, err := (&ListenConfig{Config: config}).Listen(t.Context(), "sdp", host+":0")
	require.NoError(t, err)
	defer ln.Close()
	c, s, err := bothEnds(ln, func(address string) (net.Conn, error) { return (&Dialer{Config: config}).Dial("sdp", address) })
	require.NoError(t, err)
	t.Cleanup(func() {
		c.Close()
		s.Close()
	})
	return engineOf(t, c), engineOf(t, s)
}

// TestStatsDoNotHoldConnectionsUp has a connection whose lock is held while the statistics are
// collected: other connections open and close all the same.
func TestStatsDoNotHoldConnectionsUp(t *testing.T) {
	client, _ := pair(t)
	client.mu.Lock()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		observe.Totals()
		observe.Connections()
	}()
	require.Eventually(t, func() bool {
		stack := make([]byte, 1<<20)
		return strings.Contains(string(stack[:runtime.Stack(stack, true)]), "connTable).totals")
	}, soon, time.Millisecond)
	free := make(chan struct{})
	go func() {
		observe.Open()
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

// TestViolationIsAWarning once, however often a host breaks a rule.
func TestViolationIsAWarning(t *testing.T) {
	var text conntest.Log
	host := fmt.Sprintf("127.%d.%d.1", 1+rand.IntN(255), rand.IntN(256)) // no other test has used it
	for range 3 {
		client, _ := loggedPair(t, slog.New(slog.NewTextHandler(&text, nil)), host)
		client.mu.Lock()
		client.violatedLocked(errMonitorData)
		client.mu.Unlock()
		client.Close()
	}
	require.NoError(t, WaitClosed(t.Context()))
	const warning = `level=WARN msg="sdp: protocol violation by peer"`
	require.Equal(t, 1, strings.Count(strings.Join(text.Lines(), "\n"), warning))
}

// TestLossIsNoWarning: a peer that dies during a transfer, or that reports a violation by this
// end, has not broken a rule.
func TestLossIsNoWarning(t *testing.T) {
	for name, end := range map[string]func(*Conn){
		"a Read is aborted after the end of the channel": func(c *Conn) {
			c.receiveEndedLocked(io.EOF)
			newZeroCopy(c, 1).abortToReclaimReleasing()
		},
		"a Terminate": func(c *Conn) { c.receiveEndedLocked(&rdma.TerminateError{}) },
	} {
		t.Run(name, func(t *testing.T) {
			var text conntest.Log
			client, _ := loggedPair(t, slog.New(slog.NewTextHandler(&text, nil)), "127.0.0.1")
			client.mu.Lock()
			end(client)
			client.mu.Unlock()
			client.Close()
			require.NoError(t, WaitClosed(t.Context()))
			require.NotContains(t, strings.Join(text.Lines(), "\n"), "protocol violation")
		})
	}
}
