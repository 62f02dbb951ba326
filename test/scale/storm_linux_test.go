package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/sdp"
	"github.com/gosdp/gosdp/test/traffic"
)

// TestStorm dials thousands of connections at once with the default configuration, and keeps
// them all open. None may fail. Most must use SDP, or, if each dial that is plain TCP has logged that an
// end was late, a tenth. The environment variable SDP_STORM is the number of repetitions.
func TestStorm(t *testing.T) {
	times, err := strconv.Atoi(os.Getenv("SDP_STORM"))
	if err != nil {
		times = 1
	}
	sizes := []int{1000, 2000, 3000}
	if testing.Short() {
		sizes = sizes[:1]
	}
	for _, n := range sizes {
		for i := range times {
			t.Run(fmt.Sprint(n, " ", i), func(t *testing.T) { storm(t, n) })
		}
	}
}

// lateness has the reasons for which a dial that asked the server is plain TCP because an end was late,
// and how long such a dial takes at least.
var lateness = map[string]time.Duration{
	"it did not answer within 1s": time.Second,     // Config.ReplyTimeout
	"this end was too slow":       2 * time.Second, // handshake.patience
	"sendmsg: broken pipe":        2 * time.Second, // likewise: the server has dropped the channel
}

// wasLate reports whether a dial that took that long has logged that an end was late.
func wasLate(log string, took time.Duration) bool {
	for reason, least := range lateness {
		if strings.Contains(log, reason) && took >= least {
			return true
		}
	}
	return false
}

func storm(t *testing.T, n int) {
	server, err := traffic.StartSecond(serveVariable + "=" + anyDevice)
	require.NoError(t, err)
	defer server.Stop()
	address := strings.Fields(server.First)[0]
	var dials, all sync.WaitGroup
	var overSDP, late, failed atomic.Int32
	dials.Add(n)
	begin := time.Now()
	for i := range n {
		all.Go(func() {
			var log bytes.Buffer
			logger := slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
			d := sdp.Dialer{Config: &sdp.Config{Logger: logger}}
			begin := time.Now()
			c, err := d.Dial("tcp", address)
			took := time.Since(begin)
			_, over := c.(*sdp.Conn)
			said := "" // a connection over SDP may go on logging
			if !over {
				said = log.String()
			}
			dials.Done()
			if !assert.NoError(t, err) {
				failed.Add(1)
				return
			}
			defer c.Close()
			switch {
			case over:
				overSDP.Add(1)
			case wasLate(said, took):
				late.Add(1)
			default:
				t.Logf("plain TCP after %v:\n%s", took, said)
			}
			dials.Wait()
			c.SetDeadline(time.Now().Add(time.Minute))
			sent, got := binary.BigEndian.AppendUint64(nil, uint64(i)), make([]byte, word)
			_, err = c.Write(sent)
			assert.NoError(t, err, "%T %v", c, c.LocalAddr())
			_, err = io.ReadFull(c, got)
			assert.NoError(t, err, "%T %v", c, c.LocalAddr())
			assert.True(t, bytes.Equal(sent, got))
		})
	}
	dials.Wait()
	took := time.Since(begin)
	all.Wait()
	t.Logf("%d dials in %v, %d of them over SDP, %d late, %d failed", n, took.Round(time.Millisecond), overSDP.Load(), late.Load(), failed.Load())
	if !raceEnabled { // with it, 3,000 concurrent dials take longer than the timeouts
		least := n / 2
		if int(overSDP.Load()+late.Load()) == n {
			least = n / 10
		}
		assert.Greater(t, int(overSDP.Load()), least)
	}
	assert.Positive(t, overSDP.Load())
}
