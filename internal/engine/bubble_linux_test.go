package engine

import (
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/internal/observe"
)

// TestCloseInABubbleLeavesNothing, although the peer's host has gone and does not have
// what was written.
func TestCloseInABubbleLeavesNothing(t *testing.T) {
	ln, err := engineListen()
	require.NoError(t, err)
	defer ln.Close()
	accepted := make(chan net.Conn, 1)
	go func() {
		s, err := ln.Accept()
		assert.NoError(t, err)
		accepted <- s
	}()
	require.NoError(t, WaitClosed(t.Context())) // what tests before have left would end meanwhile
	var s *Conn
	defer func() {
		if s != nil {
			s.SetLinger(0)
			s.Close()
		}
	}()
	synctest.Test(t, func(t *testing.T) {
		c, err := engineDial(ln.Addr().String())
		require.NoError(t, err)
		s = engineOf(t, <-accepted)
		vanish(t, s)
		_, err = c.Write([]byte("x"))
		require.NoError(t, err)
		require.NoError(t, c.Close())
		assert.Zero(t, observe.Totals().Closing, "nothing is left to the background")
	})
}

// TestIdleMonitorStaysOutOfBubbles, whose goroutines and timers are not its own.
func TestIdleMonitorStaysOutOfBubbles(t *testing.T) {
	pair(t) // so that it runs
	ln, err := engineListen()
	require.NoError(t, err)
	defer ln.Close()
	accepted := accept1(ln)
	synctest.Test(t, func(t *testing.T) {
		nc, err := engineDial(ln.Addr().String())
		require.NoError(t, err)
		c := engineOf(t, nc)
		idleMonitor.mu.Lock()
		assert.NotContains(t, idleMonitor.conns, c)
		idleMonitor.mu.Unlock()
		require.NoError(t, c.Close())
	})
	require.NoError(t, (<-accepted).Close())
}

// TestIdleMonitorAfterABubble visits a connection that was used in one while no connection was visited.
func TestIdleMonitorAfterABubble(t *testing.T) {
	c, s := pair(t)
	for _, end := range []*Conn{c, s} {
		end.mu.Lock()
		idleMonitor.removeLocked(end)
		end.mu.Unlock()
	}
	require.Eventually(t, func() bool { // connections of earlier tests may still close
		idleMonitor.mu.Lock()
		defer idleMonitor.mu.Unlock()
		return idleMonitor.ticker == nil
	}, soon, time.Millisecond)
	synctest.Test(t, func(*testing.T) { roundTrip(t, c, s, 1)() })
	roundTrip(t, c, s, 1)()
	for _, end := range []*Conn{c, s} {
		idleMonitor.mu.Lock()
		assert.Contains(t, idleMonitor.conns, end)
		assert.NotNil(t, idleMonitor.ticker)
		idleMonitor.mu.Unlock()
	}
}
