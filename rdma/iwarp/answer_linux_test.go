package iwarp

import (
	"net"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// oneRead is a sink that has the peer send when the read is about to park.
type oneRead struct {
	b    []byte
	send func()
}

func (s *oneRead) space() (first, second []byte) { return s.b, nil }
func (s *oneRead) got(int)                       {}
func (s *oneRead) parking()                      { s.send() }

// TestAnswer: much data at once is a reason to poll if as much was written since the wait before,
// and shows a stream otherwise.
func TestAnswer(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	c, err := net.Dial("tcp", ln.Addr().String())
	require.NoError(t, err)
	peer, err := ln.Accept()
	require.NoError(t, err)
	defer peer.Close()
	x, err := newTransport(c)
	require.NoError(t, err)
	r := x.(*rawTransport)
	defer r.close()
	r.toSelf.Store(false)

	write := func(n int) {
		t.Helper()
		for n > 0 {
			m, err := r.write([][]byte{make([]byte, n)})
			require.NoError(t, err)
			n -= m
			_, err = peer.Read(make([]byte, 1<<20))
			require.NoError(t, err)
		}
	}
	of := func(n int) bool { r.readN = n; return r.hurried() }
	assert.True(t, of(bulk-1))
	assert.False(t, of(bulk), "a stream")
	write(bulk - 1)
	assert.False(t, of(bulk), "it would answer less")
	write(1)
	assert.True(t, of(bulk), "an answer")
	sent := false
	n, err := r.read(&oneRead{make([]byte, 1), func() {
		if !sent {
			sent = true
			peer.Write([]byte{1})
		}
	}}, true)
	require.NoError(t, err)
	assert.Equal(t, 1, n)
	assert.True(t, sent)
	assert.False(t, of(bulk), "that was before the last wait")
}
