package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
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

// TestStorm has thousands dial at once, with the defaults, and keep their connections
// until all have theirs: none fails, whether it comes up over SDP or as plain TCP. The
// variable SDP_STORM says how often each storm is repeated.
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

func storm(t *testing.T, n int) {
	server, err := traffic.StartSecond(serveVariable + "=" + anyDevice)
	require.NoError(t, err)
	defer server.Stop()
	address := strings.Fields(server.First)[0]
	var dials, all sync.WaitGroup
	var overSDP, failed atomic.Int32
	dials.Add(n)
	begin := time.Now()
	for i := range n {
		all.Go(func() {
			c, err := sdp.Dial("tcp", address)
			dials.Done()
			if !assert.NoError(t, err) {
				failed.Add(1)
				return
			}
			defer c.Close()
			if _, ok := c.(*sdp.Conn); ok {
				overSDP.Add(1)
			}
			dials.Wait()
			c.SetDeadline(time.Now().Add(time.Minute))
			said, got := binary.BigEndian.AppendUint64(nil, uint64(i)), make([]byte, word)
			_, err = c.Write(said)
			assert.NoError(t, err, "%T %v", c, c.LocalAddr())
			_, err = io.ReadFull(c, got)
			assert.NoError(t, err)
			assert.True(t, bytes.Equal(said, got))
		})
	}
	dials.Wait()
	took := time.Since(begin)
	all.Wait()
	t.Logf("%d dials in %v, %d of them over SDP, %d failed", n, took.Round(time.Millisecond), overSDP.Load(), failed.Load())
	if !raceEnabled { // with it, what 3,000 do at once takes longer than a peer may take
		assert.Greater(t, int(overSDP.Load()), n/2)
	}
	assert.Positive(t, overSDP.Load())
}
