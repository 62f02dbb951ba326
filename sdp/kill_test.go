package sdp

import (
	"bufio"
	"bytes"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/test/conntest"
)

// killConns is how many connections a process has that is killed.
const killConns = 4

// beVictim dials some connections, and floods them until it is killed.
func beVictim(address string) {
	var flooding sync.WaitGroup
	for range killConns {
		c, err := engineDial(address)
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		flooding.Go(func() { floodBoth(c) })
	}
	fmt.Println("up")
	flooding.Wait()
	os.Exit(1)
}

// floodBoth writes and reads until both have ended, and returns why.
func floodBoth(c net.Conn) (writeErr, readErr error) {
	var writing sync.WaitGroup
	writing.Go(func() {
		sizes := []int{1, 100, 5000, 70_000, 1 << 20}
		b := make([]byte, 1<<20)
		for i := 0; writeErr == nil; i++ {
			_, writeErr = c.Write(b[:sizes[i%len(sizes)]])
		}
	})
	b := make([]byte, 128<<10)
	for readErr == nil {
		_, readErr = c.Read(b)
	}
	writing.Wait()
	return writeErr, readErr
}

// TestPeerIsKilled at any moment, under load. The survivor always learns of it,
// and nothing of the connection is left.
func TestPeerIsKilled(t *testing.T) {
	rounds := 500
	switch {
	case testing.Short(): // each is a process and four connections
		rounds = 4
	case raceEnabled:
		rounds = 50
	}
	k := killer{t: t}
	var err error
	k.ln, err = engineListen()
	require.NoError(t, err)
	var serving sync.WaitGroup
	defer serving.Wait()
	defer k.ln.Close()
	serving.Go(k.serve)
	for range 2 { // what a process keeps
		k.round(0)
		k.round(1)
	}
	var before, after held
	require.Eventually(t, func() bool { // those of earlier tests have gone
		was := before
		before = holds(t)
		return before == was
	}, 10*time.Second, 50*time.Millisecond)
	for i := range rounds {
		k.round(i)
	}
	assert.Eventually(t, func() bool {
		after = holds(t)
		return after.descriptors <= before.descriptors && after.areas <= before.areas && after.goroutines <= before.goroutines
	}, soon, 10*time.Millisecond, "%+v", before)
	t.Logf("%d processes killed, %d connections: %+v before, %+v after", rounds, k.accepted.Load(), before, after)
}

// killer has processes make connections, and kills them.
type killer struct {
	t        *testing.T
	ln       net.Listener
	active   atomic.Int64 // connections that are flooded
	accepted atomic.Int64
}

func (k *killer) serve() {
	var flooding sync.WaitGroup
	defer flooding.Wait()
	for {
		c, err := k.ln.Accept()
		if err != nil {
			return
		}
		assert.Equal(k.t, engineDevice, c.(*Conn).Device())
		k.accepted.Add(1)
		k.active.Add(1)
		flooding.Go(func() {
			defer k.active.Add(-1)
			defer c.Close()
			writeErr, readErr := floodBoth(c)
			checkDeath(k.t, readErr)
			var op *net.OpError
			assert.ErrorAs(k.t, writeErr, &op)
		})
	}
}

// round kills one process: each second one while its connections come up, the
// others when they are flooded.
func (k *killer) round(i int) {
	t := k.t
	t.Helper()
	program, err := os.Executable()
	require.NoError(t, err)
	child := exec.Command(program)
	child.Env = append(os.Environ(), conntest.RoleVariable+"=victim "+k.ln.Addr().String())
	stdin, err := child.StdinPipe() // its end would end the child
	require.NoError(t, err)
	defer stdin.Close()
	stdout, err := child.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, child.Start())
	if i%2 == 0 {
		require.Eventually(t, func() bool { return k.active.Load() > 0 }, soon, 100*time.Microsecond)
		time.Sleep(time.Duration(rand.IntN(2000)) * time.Microsecond)
	} else {
		line, err := bufio.NewReader(stdout).ReadString('\n')
		require.NoError(t, err)
		require.Equal(t, "up\n", line)
		time.Sleep(time.Duration(rand.IntN(10_000)) * time.Microsecond)
	}
	require.NoError(t, child.Process.Kill())
	child.Wait()
	require.Eventually(t, func() bool { return k.active.Load() == 0 }, soon, 100*time.Microsecond,
		"the survivor learns of it")
}

// held is what the process holds that a connection may leave behind.
type held struct{ descriptors, areas, goroutines int }

func holds(t *testing.T) held {
	t.Helper()
	h := held{goroutines: runtime.NumGoroutine()}
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip("missing: /proc, which tells what a process holds")
	}
	h.descriptors = len(files)
	maps, err := os.ReadFile("/proc/self/maps")
	require.NoError(t, err)
	h.areas = bytes.Count(maps, []byte("memfd:sdp"))
	return h
}
