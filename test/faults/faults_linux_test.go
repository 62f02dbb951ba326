package faults

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gosdp/gosdp/test/traffic"
)

// shorten returns short in short tests and with the race detector, otherwise full.
func shorten(full, short int) int {
	if testing.Short() || raceEnabled {
		return short
	}
	return full
}

// TestStopped stops one of the processes for short times, as a debugger or a hypervisor
// does. Afterwards everything must continue.
func TestStopped(t *testing.T) {
	onEachDevice(t, func(t *testing.T, device string) {
		l := startLoad(t, device)
		for i := range shorten(20, 6) {
			stopped, other := l.server, l.client
			if i%2 == 1 {
				stopped, other = l.client, l.server
			}
			require.NoError(t, stopped.cmd.Process.Signal(syscall.SIGSTOP))
			other.report(t) // it still answers
			other.report(t)
			require.NoError(t, stopped.cmd.Process.Signal(syscall.SIGCONT))
			l.client.waitSessions(t, 1)
		}
		l.client.waitSessions(t, workers)
		l.checkNoLeaks(t)
		t.Logf("%d sessions", l.requireNoFailures(t))
	})
}

// TestServerIsKilled kills the server at a random moment under load. Every call of the
// client must return, bytes received before must be right, and the client must leak nothing.
func TestServerIsKilled(t *testing.T) {
	onEachDevice(t, func(t *testing.T, device string) {
		var before traffic.Held
		for round := range shorten(10, 2) {
			server := start(t, fmt.Sprint("serve ", device, " ", serverAddress), nil)
			var done atomic.Int64 // sessions
			var working sync.WaitGroup
			for i := range workers {
				working.Go(func() {
					for n := uint64(0); ; n++ {
						if _, err := oneSession(device, server.first, uint64(i)<<32|n); err != nil {
							var wrong *traffic.WrongError
							assert.False(t, errors.As(err, &wrong), "%v", err)
							if early := new(traffic.EarlyEndError); !errors.As(err, &early) && err != io.EOF {
								isNetError(t, err)
							}
							return
						}
						done.Add(1)
					}
				})
			}
			most := rand.Int64N(4 * workers)
			require.True(t, eventually(func() bool { return done.Load() >= most }))
			server.kill()
			ended := make(chan struct{})
			go func() { working.Wait(); close(ended) }()
			select {
			case <-ended:
			case <-time.After(patience):
				require.Fail(t, "a call did not return")
			}
			if round == 0 {
				before = traffic.HeldNow()
			}
		}
		var more string
		eventually(func() bool {
			more = traffic.HeldNow().Excess(before, traffic.Slack)
			return more == ""
		})
		assert.Empty(t, more)
	})
}

// TestClientIsKilled kills the client at a random moment under load. The server must notice
// it, continue to serve, and leak nothing.
func TestClientIsKilled(t *testing.T) {
	onEachDevice(t, func(t *testing.T, device string) {
		l := startLoad(t, device)
		l.server.killed = true
		l.client.kill()
		for range shorten(10, 2) {
			client := start(t, fmt.Sprint("work ", device, " ", l.server.first, " ", workers), nil)
			client.waitSessions(t, 1+rand.IntN(2*workers))
			client.kill()
			l.server.waitIdle(t)
		}
		requireNoLeaks(t, "server", l.server, l.serverBefore)
		l.client = start(t, "work "+device+" "+l.server.first+" 0", nil)
		assert.True(t, eventually(func() bool { return l.client.session(t, device) == device }))
	})
}

// TestEnvironments runs both processes in difficult environments: one processor, constant
// garbage collection, little memory.
func TestEnvironments(t *testing.T) {
	for name, environment := range map[string][]string{
		"one processor":                              {"GOMAXPROCS=1"},
		"constant garbage collection":                {collectVariable + "=1"},
		"one processor, constant garbage collection": {"GOMAXPROCS=1", collectVariable + "=1"},
		"little memory, one processor":               {"GOMEMLIMIT=16MiB", "GOMAXPROCS=1"},
	} {
		t.Run(name, func(t *testing.T) {
			if testing.Short() && len(environment) == 1 {
				t.Skip("missing: time, because -short is set")
			}
			onEachDevice(t, func(t *testing.T, device string) {
				l := startLoad(t, device, environment...)
				l.client.waitSessions(t, shorten(4, 1)*workers)
				l.checkNoLeaks(t)
				t.Logf("%d sessions", l.requireNoFailures(t))
			})
		})
	}
}

// TestNoDescriptors makes one of the processes run out of descriptors. Operations that need
// one fail, wait, or stay on TCP. Established connections continue. When descriptors are
// available again, everything works as before.
func TestNoDescriptors(t *testing.T) {
	for _, devices := range deviceNames {
		for _, side := range []string{"client", "server"} {
			t.Run(devices+"/"+side, func(t *testing.T) {
				l := startLoad(t, devices)
				k, held := l.client, l.heldBefore.Descriptors
				if side == "server" {
					k, held = l.server, l.serverBefore.Descriptors
				}
				was := limit(t, k, 0)
				for few := range 8 { // each makes another step fail
					limit(t, k, uint64(held+few))
					for range shorten(4, 1) {
						l.client.report(t) // it still answers, and no byte was wrong
						l.server.report(t)
					}
				}
				limit(t, k, was)
				l.client.waitSessions(t, 2*workers)
				l.checkNoLeaks(t)
				r := l.client.report(t)
				t.Logf("%d sessions succeeded, %d failed, the last with %s", r.good, r.bad, r.last)
			})
		}
	}
}

// limit sets the process's limit of descriptors if n is not 0. It returns the previous
// limit.
func limit(t *testing.T, k *child, n uint64) uint64 {
	t.Helper()
	var was unix.Rlimit
	require.NoError(t, unix.Prlimit(k.cmd.Process.Pid, unix.RLIMIT_NOFILE, nil, &was))
	if n > 0 {
		require.NoError(t, unix.Prlimit(k.cmd.Process.Pid, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: n, Max: was.Max}, nil))
	}
	return was.Cur
}
