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

// TestStorm dials thousands of connections at once with the default configuration, and keeps
// them all open. None may fail, over SDP or plain TCP. The environment variable SDP_STORM is
// the number of repetitions.
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
	t.Logf("%d dials in %v, %d of them over SDP, %d failed", n, took.Round(time.Millisecond), overSDP.Load(), failed.Load())
	if !raceEnabled { // with it, 3,000 concurrent dials take longer than the timeouts
		assert.Greater(t, int(overSDP.Load()), n/2)
	}
	assert.Positive(t, overSDP.Load())
}
