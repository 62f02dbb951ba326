package proxy

import (
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestRelaysTakeNoMoreDescriptors counts the descriptors of relays between two TCP connections that
// are busy in both directions.
func TestRelaysTakeNoMoreDescriptors(t *testing.T) {
	echo := serves(t, func(c net.Conn) {
		io.Copy(struct{ io.Writer }{c}, struct{ io.Reader }{c}) // without a pipe
	})
	p, _ := running(t, 0)
	require.NoError(t, p.Apply("", []Route{route(t, "tcp://127.0.0.1:0", "tcp://"+echo)}))
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
