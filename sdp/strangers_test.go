package sdp

import (
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestNoRequestReachesTheProgram when the dialler has given up before the program accepts.
func TestNoRequestReachesTheProgram(t *testing.T) {
	ln, err := askingListen()
	require.NoError(t, err)
	defer ln.Close()
	d := Dialer{Config: &Config{Devices: []string{engineDevice}, Probe: loopback, ReplyTimeout: 50 * time.Millisecond}}
	const dials = 14 // more than are accepted ahead of the program
	for range dials {
		c, err := d.Dial("tcp", ln.Addr().String())
		require.NoError(t, err)
		defer c.Close()
		go c.Write([]byte("mine"))
	}
	for range dials {
		c, err := ln.Accept()
		require.NoError(t, err)
		defer c.Close()
		c.SetReadDeadline(time.Now().Add(soon))
		b := make([]byte, 4)
		_, err = io.ReadFull(c, b)
		assert.NoError(t, err)
		assert.Equal(t, "mine", string(b))
	}
	last, err := net.Dial("tcp", ln.Addr().String())
	require.NoError(t, err)
	defer last.Close()
	_, err = last.Write([]byte("last"))
	require.NoError(t, err)
	c, err := ln.Accept()
	require.NoError(t, err)
	defer c.Close()
	assert.Equal(t, last.LocalAddr(), c.RemoteAddr(), "the connections that were given up are nobody's")
}
