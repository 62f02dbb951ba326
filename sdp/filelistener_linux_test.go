package sdp

import (
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// listeningFile returns a listening socket of TCP, and its address.
func listeningFile(t *testing.T) (*os.File, string) {
	t.Helper()
	t.Setenv(devicesVariable, "") // FileListener has no Config
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	f, err := ln.(*net.TCPListener).File()
	require.NoError(t, err)
	t.Cleanup(func() { f.Close() })
	return f, ln.Addr().String()
}

func fileListener(t *testing.T, f *os.File) *Listener {
	t.Helper()
	l, err := FileListener(f)
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	require.NoError(t, l.(*Listener).SetDeadline(time.Now().Add(soon)))
	return l.(*Listener)
}

// TestFileListenerServesSDP on a socket that another process may have made.
func TestFileListenerServesSDP(t *testing.T) {
	f, address := listeningFile(t)
	l := fileListener(t, f)
	assert.Equal(t, address, l.Addr().String())
	got := make(chan string, 1)
	go func() {
		defer close(got)
		c, err := l.Accept()
		if !assert.NoError(t, err) {
			return
		}
		defer c.Close()
		assert.IsType(t, (*Conn)(nil), c)
		b, err := io.ReadAll(c)
		assert.NoError(t, err)
		got <- string(b)
	}()
	c, err := (&Dialer{Config: patient}).Dial("sdp", address)
	require.NoError(t, err)
	_, err = c.Write([]byte("hello"))
	assert.NoError(t, err)
	c.Close()
	assert.Equal(t, "hello", <-got)
}

// TestFileListenersShareASocket, as those of two processes do. Each accepts only while its
// program waits in Accept, and leaves to the other one what comes otherwise.
func TestFileListenersShareASocket(t *testing.T) {
	f, address := listeningFile(t)
	both := []*Listener{fileListener(t, f), fileListener(t, f)}
	for _, i := range []int{0, 1, 1, 1, 0, 0, 0} {
		dialled, err := net.Dial("tcp", address)
		require.NoError(t, err)
		defer dialled.Close()
		c, err := both[i].Accept()
		require.NoError(t, err, "listener %d", i)
		defer c.Close()
		assert.Equal(t, dialled.LocalAddr(), c.RemoteAddr())
	}
}
