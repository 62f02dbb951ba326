package sdp

import (
	"context"
	"io"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestNoRequestReachesTheProgram when the dialler has given up before the program accepts.
func TestNoRequestReachesTheProgram(t *testing.T) {
	ln, err := patientListen("tcp")
	require.NoError(t, err)
	defer ln.Close()
	d := Dialer{Config: &Config{ReplyTimeout: 50 * time.Millisecond}}
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

// TestServerSpeaksFirst where one end cannot see that the other speaks SDP: neither waits
// for the other.
func TestServerSpeaksFirst(t *testing.T) {
	bound := func(_, _ string, c syscall.RawConn) (err error) {
		c.Control(func(fd uintptr) { err = bindToLoopback(fd) })
		return err
	}
	multipath := new(net.Dialer)
	multipath.SetMultipathTCP(true)
	plainListen := func() (net.Listener, error) { return net.Listen("tcp", "127.0.0.1:0") }
	for _, v := range []struct {
		name   string
		listen func() (net.Listener, error)
		late   bool // the listener is made after the client has connected
		dialer *net.Dialer
	}{
		{"a listener in a wrapper", func() (net.Listener, error) {
			ln, err := plainListen()
			return bareListener{ln}, err
		}, false, nil},
		{"a listener that was connected to before", plainListen, true, nil},
		{"a listener on a device", func() (net.Listener, error) {
			lc := net.ListenConfig{Control: bound}
			return lc.Listen(context.Background(), "tcp", "127.0.0.1:0")
		}, false, nil},
		{"a dialler on a device", plainListen, false, &net.Dialer{Control: bound}},
		{"a dialler of multipath TCP", plainListen, false, multipath},
	} {
		t.Run(v.name, func(t *testing.T) {
			below, err := v.listen()
			if err != nil {
				t.Skip("missing: a system that has such a listener: ", err)
			}
			d := Dialer{NetDialer: v.dialer}
			var c net.Conn
			dial := func() {
				if c, err = d.Dial("tcp", below.Addr().String()); err != nil {
					t.Skip("missing: a system that has such a socket: ", err)
				}
			}
			if v.late {
				dial()
			}
			ln, err := NewListener(below, patient)
			require.NoError(t, err)
			defer ln.Close()
			go func() {
				s, err := ln.Accept()
				if assert.NoError(t, err) {
					s.Write([]byte("220 ready"))
					s.Close()
				}
			}()
			if !v.late {
				dial()
			}
			defer c.Close()
			c.SetDeadline(time.Now().Add(soon))
			got, err := io.ReadAll(c)
			assert.NoError(t, err)
			assert.Equal(t, "220 ready", string(got))
		})
	}
}

// TestManyAcceptOnDemand beside each other: each connection is one of them's.
func TestManyAcceptOnDemand(t *testing.T) {
	below, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ln, err := NewListener(below, patient)
	require.NoError(t, err)
	ln.l.OnDemand()
	rounds := 200
	if testing.Short() {
		rounds = 25
	}
	var accepting, dialling sync.WaitGroup
	for range 4 {
		accepting.Go(func() {
			for {
				c, err := ln.Accept()
				if err != nil {
					return
				}
				assert.NotNil(t, c)
				c.Close()
			}
		})
	}
	for range 4 {
		dialling.Go(func() {
			for range rounds {
				c, err := (&Dialer{Config: patient}).Dial("tcp", below.Addr().String())
				if assert.NoError(t, err) {
					c.Close()
				}
			}
		})
	}
	dialling.Wait()
	require.NoError(t, ln.Close())
	accepting.Wait()
}
