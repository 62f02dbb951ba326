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

// killedVariable makes the test binary the peer that is killed under load. Its value is the
// index of the load and the address to dial.
const killedVariable = "VERBS_KILLED"

// load is the traffic on a connection while its peer is killed.
type load struct {
	name      string
	threshold int
	size      int
	writes    bool // the survivor writes; otherwise the peer does
}

var loads = []load{
	{"read from", zeroCopy, 4 << 20, true},
	{"reading", zeroCopy, 4 << 20, false},
	{"sending", copying, 16 << 10, true},
	{"receiving", copying, 16 << 10, false},
}

// move writes or reads until an error, and calls moved with the number of bytes of each call.
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

// TestKilledUnderLoad: the peer is killed in the middle of zero-copy transfers or messages.
// The survivor's call fails in time, Close frees everything, and a new connection works.
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
	const enough = 16 << 20 // moved before the peer is killed, so that both ends are at full speed
	for i, l := range loads {
		t.Run(l.name, func(t *testing.T) {
			before, _ := memoryOf(t)
			ln, err := (&sdp.ListenConfig{Config: benchConfig(l.threshold)}).Listen(context.Background(), "sdp", address(t))
			require.NoError(t, err)
			defer ln.Close()
			child := exec.Command(os.Args[0], "-test.run", "^TestKilledUnderLoad$")
			child.Env = append(os.Environ(), fmt.Sprintf("%s=%d %s", killedVariable, i, ln.Addr()))
			require.NoError(t, child.Start())
			defer child.Process.Kill() // in case the test fails earlier
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
					killing.Go(func() { // during the next call
						assert.NoError(t, child.Process.Kill())
						_ = child.Wait() // ignore "signal: killed"
					})
					killed = time.Now()
				}
			})
			told := time.Since(killed)
			require.False(t, killed.IsZero(), "failed before the peer was killed: %v", err)
			t.Logf("killed after %d MB, noticed after %v: %v", moved>>20, told, err)
			assertGone(t, err)
			if l.threshold == zeroCopy {
				stats := c.Stats()
				assert.NotZero(t, stats.ZCopySent+stats.ZCopyReceived)
			}
			c.Close()
			after, _ := memoryOf(t)
			assert.LessOrEqual(t, after, before, "pinned memory")
			client, server := pair(t, onVerbs)
			exchange(t, client, server, 1, 1<<20)
		})
	}
}
