package proxy

import (
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestRelaysTakeNoMoreDescriptors counts the descriptors of relays between two TCP connections that
// are busy in both directions.
func TestRelaysTakeNoMoreDescriptors(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var all sync.WaitGroup
	t.Cleanup(func() { l.Close(); all.Wait() })
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				defer c.Close()
				io.Copy(struct{ io.Writer }{c}, struct{ io.Reader }{c}) // without a pipe
			})
		}
	})
	p, _ := running(t, 0)
	require.NoError(t, p.Apply("", []Route{route(t, "tcp://127.0.0.1:0", "tcp://"+l.Addr().String())}))
	count := func() int {
		files, err := os.ReadDir("/proc/self/fd")
		require.NoError(t, err)
		return len(files)
	}
	const relays = 20
	before := count()
	for range relays {
		echoes(t, client(t, "tcp", at(p), ""), "hello")
	}
	const others = 2   // the client's socket and the server's
	const runtime = 10 // what the runtime and package net may open in the meantime, and more
	require.Eventually(t, func() bool { return count()-before <= relays*(others+perRelay)+runtime }, patience, time.Millisecond,
		"a relay takes more than %d descriptors", perRelay)
}

func TestDefaultLimitLeavesDescriptors(t *testing.T) {
	require.Equal(t, DefaultLimit(0)-10, DefaultLimit(10*perRelay))
}
