package faults

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gosdp/gosdp/test/traffic"
)

// less is full, or short if there is little time.
func less(full, short int) int {
	if testing.Short() || raceEnabled {
		return short
	}
	return full
}

// TestStopped has either process stopped for moments, as a debugger or a
// hypervisor does: all goes on afterwards, as if nothing had been.
func TestStopped(t *testing.T) {
	onEachDevice(t, func(t *testing.T, device string) {
		l := startLoad(t, device)
		r := rand.New(rand.NewPCG(1, 2))
		for i := range less(20, 8) {
			k := []*child{l.server, l.client}[i%2]
			require.NoError(t, k.cmd.Process.Signal(syscall.SIGSTOP))
			time.Sleep(time.Duration(10+r.IntN(150)) * time.Millisecond)
			require.NoError(t, k.cmd.Process.Signal(syscall.SIGCONT))
			time.Sleep(time.Duration(r.IntN(50)) * time.Millisecond)
		}
		l.client.more(t, workers)
		l.leavesNothing(t)
		t.Logf("%d sessions", l.good(t))
	})
}

// TestServerIsKilled at any moment under load. Each call of the client's returns,
// with bytes that were right until then, and nothing is left in it.
func TestServerIsKilled(t *testing.T) {
	onEachDevice(t, func(t *testing.T, device string) {
		var before traffic.Held
		for round := range less(10, 3) {
			server := start(t, fmt.Sprint("serve ", device, " ", here), nil)
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
					}
				})
			}
			time.Sleep(time.Duration(50+rand.IntN(150)) * time.Millisecond)
			server.kill()
			ended := make(chan struct{})
			go func() { working.Wait(); close(ended) }()
			select {
			case <-ended:
			case <-time.After(10 * time.Second):
				require.Fail(t, "a call does not return")
			}
			if round == 0 {
				before = traffic.Holds()
			}
		}
		var more string
		within(10*time.Second, func() bool {
			more = traffic.Holds().More(before, traffic.Slack)
			return more == ""
		})
		assert.Empty(t, more)
	})
}

// TestClientIsKilled at any moment under load. The server learns of it at once,
// goes on serving, and holds nothing of it.
func TestClientIsKilled(t *testing.T) {
	onEachDevice(t, func(t *testing.T, device string) {
		l := startLoad(t, device)
		l.server.killed = true
		l.client.kill()
		for range less(10, 3) {
			client := start(t, fmt.Sprint("work ", device, " ", l.server.first, " ", workers), nil)
			client.more(t, 1)
			time.Sleep(time.Duration(rand.IntN(50)) * time.Millisecond)
			client.kill()
			l.server.quiet(t)
		}
		leftNothing(t, "server", l.server, l.serverBefore)
		l.client = start(t, "work "+device+" "+l.server.first+" 0", nil)
		assert.Equal(t, device, l.client.session(t, device))
	})
}

// TestEnvironments are hard ones, for both processes: one processor, a collector
// that never rests, little memory.
func TestEnvironments(t *testing.T) {
	for name, environment := range map[string][]string{
		"one processor":                    {"GOMAXPROCS=1"},
		"the collector":                    {collectVariable + "=1"},
		"one processor, and the collector": {"GOMAXPROCS=1", collectVariable + "=1"},
		"little memory":                    {"GOMEMLIMIT=16MiB"},
	} {
		t.Run(name, func(t *testing.T) {
			onEachDevice(t, func(t *testing.T, device string) {
				l := startLoad(t, device, environment...)
				l.client.more(t, less(4, 1)*workers)
				l.leavesNothing(t)
				t.Logf("%d sessions", l.good(t))
			})
		})
	}
}

// TestNoDescriptors has one process, or the other, run out of descriptors: what
// needs one fails, or waits, or stays on iwarp; what is up goes on; and when there
// are some again, all is as before.
func TestNoDescriptors(t *testing.T) {
	for _, devices := range append(slices.Clone(deviceNames), "shm,iwarp") {
		for _, side := range []string{"client", "server"} {
			t.Run(devices+"/"+side, func(t *testing.T) {
				l := startLoad(t, devices)
				k, held := l.client, l.heldBefore.Descriptors
				if side == "server" {
					k, held = l.server, l.serverBefore.Descriptors
				}
				was := limit(t, k, 0)
				for few := range 8 { // each leaves another step without one
					limit(t, k, uint64(held+few))
					time.Sleep(100 * time.Millisecond)
					l.client.report(t) // it answers, and no byte was wrong
					l.server.report(t)
				}
				limit(t, k, was)
				l.client.more(t, 2*workers)
				l.leavesNothing(t)
				r := l.client.report(t)
				t.Logf("%d sessions, %d have failed, the last with %s", r.good, r.bad, r.last)
			})
		}
	}
}

// limit sets how many descriptors the process may have, and returns how many it
// might. 0 changes nothing.
func limit(t *testing.T, k *child, n uint64) uint64 {
	t.Helper()
	var was unix.Rlimit
	require.NoError(t, unix.Prlimit(k.cmd.Process.Pid, unix.RLIMIT_NOFILE, nil, &was))
	if n > 0 {
		require.NoError(t, unix.Prlimit(k.cmd.Process.Pid, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: n, Max: was.Max}, nil))
	}
	return was.Cur
}
