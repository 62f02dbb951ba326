package sdp

import (
	"net"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestUnixIsPlain at both ends.
func TestUnixIsPlain(t *testing.T) {
	address := filepath.Join(t.TempDir(), "plain")
	ln, err := net.Listen("unix", address)
	require.NoError(t, err)
	defer ln.Close()
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				b := make([]byte, 100)
				n, _ := c.Read(b)
				if string(b[:n]) == "hello" {
					c.Write([]byte("world"))
				}
			}()
		}
	}()
	c, err := Dial("unix", address)
	require.NoError(t, err)
	defer c.Close()
	require.IsType(t, (*net.UnixConn)(nil), c)
	_, err = c.Write([]byte("hello"))
	require.NoError(t, err)
	b := make([]byte, 5)
	_, err = c.Read(b)
	require.NoError(t, err)
	assert.Equal(t, "world", string(b))

	address = filepath.Join(t.TempDir(), "sdp")
	sdp, err := Listen("unix", address)
	require.NoError(t, err)
	defer sdp.Close()
	accepted := accept1(sdp)
	plain, err := net.Dial("unix", address)
	require.NoError(t, err)
	defer plain.Close()
	_, err = plain.Write([]byte("hello"))
	require.NoError(t, err)
	s := <-accepted
	defer s.Close()
	require.IsType(t, (*net.UnixConn)(nil), s)
	_, err = s.Read(b)
	require.NoError(t, err)
	assert.Equal(t, "hello", string(b))
}
