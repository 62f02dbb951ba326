package sdp

import (
	"bufio"
	"bytes"
	"io"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestThousandsOfIdleConnections between two processes, and then traffic on all of
// them.
func TestThousandsOfIdleConnections(t *testing.T) {
	conns := 9000
	var limit syscall.Rlimit
	require.NoError(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit))
	conns = min(conns, (int(limit.Cur)*9/10-200)/2) // above nine tenths no channel of shared memory is made
	if raceEnabled || testing.Short() {
		conns = 500
	}
	p := startPeer(t)
	before := holds(t)
	memory, shared := resident(t)
	all := make([]*Conn, conns)
	var dialling sync.WaitGroup
	places := make(chan struct{}, 32)
	d := Dialer{Config: patient}
	for i := range all {
		places <- struct{}{}
		dialling.Go(func() {
			defer func() { <-places }()
			c, err := d.Dial("sdp", p.address)
			if !assert.NoError(t, err) {
				return
			}
			all[i] = c.(*Conn)
			assert.Equal(t, bestDevice(), all[i].Device(), "%v", all[i].Stats().Declined)
			_, err = c.Write([]byte("echo\n"))
			assert.NoError(t, err)
		})
	}
	dialling.Wait()
	if t.Failed() {
		return
	}
	time.Sleep(5 * time.Second) // until the idle monitor visits them no more
	require.Eventually(t, func() bool {
		idleMonitor.mu.Lock()
		defer idleMonitor.mu.Unlock()
		return len(idleMonitor.conns) == 0
	}, time.Minute, 10*time.Millisecond)
	after := holds(t)
	assert.LessOrEqual(t, after.descriptors-before.descriptors, 2*conns+8)
	runtime.GC()
	memoryAfter, sharedAfter := resident(t)
	used := time.Hour
	for range 3 { // the runtime may have something to do in one
		before := processorTime(t)
		time.Sleep(time.Second)
		used = min(used, processorTime(t)-before)
	}
	t.Logf("%d connections: %d bytes of memory of this process's own each, %d shared; %v of processor time in a second; %+v before, %+v after",
		conns, (memoryAfter-memory)/conns, (sharedAfter-shared)/conns, used, before, after)
	assert.Less(t, used, 50*time.Millisecond, "idle connections use no processor")

	var talking sync.WaitGroup
	for i, c := range all {
		places <- struct{}{}
		talking.Go(func() {
			defer func() { <-places }()
			c.SetDeadline(time.Now().Add(time.Minute))
			message := streamAt(i, 5000)
			go c.Write(message)
			got := make([]byte, len(message))
			_, err := io.ReadFull(c, got)
			assert.NoError(t, err)
			assert.True(t, bytes.Equal(message, got))
			assert.NoError(t, c.Close())
		})
	}
	talking.Wait()
}

// TestRestingConnectionBecomesActive: the monitor visits it at the next tick, and not when it visits the
// others that rest, or the peer would have to wait for a background poller until then. Without activity
// it does not: a Read whose deadline passes now and then costs no visits.
func TestRestingConnectionBecomesActive(t *testing.T) {
	const later = 1000
	for name, v := range map[string]struct {
		ticks  int32
		active bool
		next   int64
	}{
		"active":           {restTicks, true, 0},
		"for long":         {2*idleTicks - 1, true, 0},
		"idle":             {restTicks, false, later},
		"it does not rest": {restTicks - 1, true, later},
	} {
		c := &conn{idle: idleState{enabled: true, listed: true, ticks: v.ticks}}
		m := &monitor{conns: map[*conn]int64{c: later}, now: 7, next: later, ticker: newTicker()}
		defer m.ticker.stop()
		if v.active {
			c.poll.activity++
		}
		for range 2 {
			m.watchLocked(c)
			assert.Equal(t, v.next, m.conns[c], name)
			assert.Equal(t, v.next != later, m.soon, name)
		}
		assert.NotEqual(t, c.idle.ticks >= restTicks, v.active, "%s: the next calls cost nothing", name)
	}
}

func processorTime(t *testing.T) time.Duration {
	var u syscall.Rusage
	require.NoError(t, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// resident is how many bytes of memory the process has, of its own and shared.
func resident(t *testing.T) (own, shared int) {
	t.Helper()
	f, err := os.Open("/proc/self/status")
	if err != nil {
		t.Skip("missing: /proc, which tells how much memory a process has")
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		name, rest, _ := strings.Cut(lines.Text(), ":")
		n, _ := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(rest), " kB"))
		switch name {
		case "RssAnon":
			own = n << 10
		case "RssShmem":
			shared = n << 10
		}
	}
	return own, shared
}
