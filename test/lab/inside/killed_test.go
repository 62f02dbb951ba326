//go:build linux

package inside

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/sdp"
)

// killedVariable has the test's program be the peer that is killed under load: which
// of the cases it is, and the address to dial.
const killedVariable = "VERBS_KILLED"

// load is what goes over a connection when its peer is killed.
type load struct {
	name      string
	threshold int
	size      int
	writes    bool // the survivor, else the peer
}

var loads = []load{
	{"read from", zeroCopy, 4 << 20, true},
	{"reading", zeroCopy, 4 << 20, false},
	{"sending", copying, 16 << 10, true},
	{"receiving", copying, 16 << 10, false},
}

// move writes or reads without end, and calls moved with how many bytes it was.
func (l load) move(c *sdp.Conn, writes bool, moved func(int)) error {
	buf := make([]byte, l.size)
	for {
		n, err := 0, error(nil)
		if writes {
			n, err = c.Write(buf)
		} else {
			n, err = c.Read(buf)
		}
		if err != nil {
			return err
		}
		moved(n)
	}
}

// TestKilledUnderLoad: the peer is killed in the middle of zero-copy transfers, and of
// messages. The survivor is told in time, and keeps nothing of the connection; the
// next one works.
func TestKilledUnderLoad(t *testing.T) {
	if what := os.Getenv(killedVariable); what != "" {
		var i int
		var at string
		_, err := fmt.Sscan(what, &i, &at)
		require.NoError(t, err)
		c, err := (&sdp.Dialer{Config: benchConfig(loads[i].threshold)}).Dial("sdp", at)
		require.NoError(t, err)
		t.Fatal(loads[i].move(c.(*sdp.Conn), !loads[i].writes, func(int) {}))
	}
	const (
		enough = 16 << 20 // moved before the peer is killed: both ends are at full speed
		inTime = 20 * time.Second
	)
	for i, l := range loads {
		t.Run(l.name, func(t *testing.T) {
			before, _ := memoryOf(t)
			ln, err := (&sdp.ListenConfig{Config: benchConfig(l.threshold)}).Listen(context.Background(), "sdp", address(t))
			require.NoError(t, err)
			defer ln.Close()
			child := exec.Command(os.Args[0], "-test.run", "^TestKilledUnderLoad$")
			child.Env = append(os.Environ(), fmt.Sprintf("%s=%d %s", killedVariable, i, ln.Addr()))
			require.NoError(t, child.Start())
			defer child.Process.Kill() // if it does not come to it
			accepted, err := ln.Accept()
			require.NoError(t, err)
			c := accepted.(*sdp.Conn)
			require.Equal(t, "verbs", c.Device())
			var killed time.Time
			moved := 0
			var killing sync.WaitGroup
			defer killing.Wait()
			err = l.move(c, l.writes, func(n int) {
				if moved += n; moved >= enough && killed.IsZero() {
					killing.Go(func() { // in the middle of the next
						assert.NoError(t, child.Process.Kill())
						_ = child.Wait() // it was killed
					})
					killed = time.Now()
				}
			})
			told := time.Since(killed)
			require.False(t, killed.IsZero(), "before it was killed: %v", err)
			t.Logf("after %d MB, told after %v: %v", moved>>20, told, err)
			assertGone(t, err)
			assert.Less(t, told, inTime)
			if l.threshold == zeroCopy {
				stats := c.Stats()
				assert.NotZero(t, stats.ZCopySent+stats.ZCopyReceived)
			}
			closing := time.Now()
			c.Close()
			assert.Less(t, time.Since(closing), inTime, "Close")
			after, _ := memoryOf(t)
			assert.LessOrEqual(t, after, before, "memory that is pinned")
			client, server := pair(t, onVerbs)
			exchange(t, client, server, 1, 1<<20)
		})
	}
}
