package harness

import (
	"bytes"
	"net"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestIntactChecksPositions(t *testing.T) {
	const size = 1000
	var stream []byte
	buf := make([]byte, size)
	for k := range 300 {
		fill(buf, k)
		require.Equal(t, bytes.Repeat([]byte{byte(k)}, size), buf)
		stream = append(stream, buf...)
	}
	for _, at := range []int{0, 1, size - 1, size, 255*size + 7, 256 * size} {
		require.True(t, intact(stream[at:at+3*size/2], at, size), "at %d", at)
		require.False(t, intact(stream[at:at+3*size/2], at+size, size), "one message on from %d", at)
	}
}

func TestReaderNoticesWrongData(t *testing.T) {
	for name, read := range map[string]half{
		"drain": drain,
		"ask": func(conn net.Conn, buf []byte, n int) error {
			return timeRoundTrips(conn, buf, n, 0, new(times).shard(0))
		},
	} {
		t.Run(name, func(t *testing.T) {
			near, far := net.Pipe()
			defer near.Close()
			go func() {
				defer far.Close()
				if name == "ask" {
					far.Read(make([]byte, 8))
				}
				far.Write([]byte("garbage!"))
			}()
			require.ErrorIs(t, read(near, sized(nil, 8), 1), errWrongData)
		})
	}
}

func TestStreamCutShortIsAnError(t *testing.T) {
	near, far := net.Pipe()
	defer near.Close()
	go func() {
		defer far.Close()
		far.Write(make([]byte, 7))
	}()
	require.Error(t, drain(near, sized(nil, 8), 1))
}
