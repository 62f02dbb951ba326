package sdp

import (
	"net"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/nettest"
)

// accept1 accepts a connection beside the test.
func accept1(ln net.Listener) <-chan net.Conn {
	accepted := make(chan net.Conn, 1)
	go func() {
		c, _ := ln.Accept()
		accepted <- c
	}()
	return accepted
}

func TestUnix(t *testing.T) {
	for _, device := range []string{"iwarp"} {
		t.Run(device, func(t *testing.T) {
			address := filepath.Join(t.TempDir(), "socket")
			config := &Config{Devices: []string{device}}
			nettest.TestConn(t, func() (net.Conn, net.Conn, func(), error) {
				lc := ListenConfig{Config: config}
				ln, err := lc.Listen(t.Context(), "unix", address)
				if err != nil {
					return nil, nil, nil, err
				}
				defer ln.Close()
				accepted := accept1(ln)
				d := Dialer{Config: config}
				c, err := d.Dial("unix", address)
				if err != nil {
					return nil, nil, nil, err
				}
				s := <-accepted
				require.NotNil(t, s)
				assert.Equal(t, device, c.(*Conn).Device())
				assert.Equal(t, device, s.(*Conn).Device())
				assert.Equal(t, address, c.RemoteAddr().String())
				return c, s, func() {
					c.Close()
					s.Close()
				}, nil
			})
			assert.NoFileExists(t, address)
		})
	}
}

// TestUnixWithoutSDP at the one end or the other.
func TestUnixWithoutSDP(t *testing.T) {
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
