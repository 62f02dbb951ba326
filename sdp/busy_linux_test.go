package sdp

import (
	"context"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/test/conntest"
)

// TestDialStoppedServer, which has SDP: on network tcp a Dial does not notice, and on network sdp it succeeds when the
// server continues.
func TestDialStoppedServer(t *testing.T) {
	for _, v := range []struct {
		network string
		devices []string
	}{
		{"tcp", nil},
		{"sdp", []string{"iwarp"}},
		{"sdp", []string{"shm"}},
	} {
		t.Run(v.network, func(t *testing.T) {
			t.Setenv(devicesVariable, "")
			p := conntest.StartPeer(t, "echo "+v.network)
			p.Stop(t)
			asked := make(chan struct{})
			d := Dialer{
				NetDialer: &net.Dialer{Control: func(string, string, syscall.RawConn) error { close(asked); return nil }},
				Config:    &Config{Devices: v.devices},
			}
			dialled := make(chan net.Conn, 1)
			go func() {
				c, err := d.Dial(v.network, p.Address)
				assert.NoError(t, err)
				dialled <- c
			}()
			<-asked
			var c net.Conn
			if v.network == "tcp" {
				c = <-dialled
			}
			require.NoError(t, p.Cmd.Process.Signal(syscall.SIGCONT))
			if c == nil {
				c = <-dialled
			}
			require.NotNil(t, c)
			checkEcho(t, c)
		})
	}
}

// TestDialBusyServer, which does not accept: on network sdp a Dial ends as one of package net does whose server does not
// answer.
func TestDialBusyServer(t *testing.T) {
	for _, devices := range [][]string{{"shm"}, {"iwarp"}, {"shm", "iwarp"}} {
		ln, err := (&ListenConfig{Config: &Config{Devices: devices}}).Listen(t.Context(), "sdp", "127.0.0.1:0")
		require.NoError(t, err)
		defer ln.Close()
		d := Dialer{NetDialer: &net.Dialer{Timeout: 50 * time.Millisecond}, Config: &Config{Devices: devices}}
		_, err = d.Dial("sdp", ln.Addr().String())
		assert.ErrorContains(t, err, ": i/o timeout", "%v", devices)
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		var timeout net.Error
		require.ErrorAs(t, err, &timeout)
		assert.True(t, timeout.Timeout())

		ctx, cancel := context.WithCancel(t.Context())
		cancelled := make(chan error)
		asked := make(chan struct{})
		d.NetDialer = &net.Dialer{Control: func(string, string, syscall.RawConn) error { close(asked); return nil }}
		go func() {
			_, err := d.DialContext(ctx, "sdp", ln.Addr().String())
			cancelled <- err
		}()
		<-asked
		cancel()
		err = <-cancelled
		assert.ErrorContains(t, err, ": operation was canceled", "%v", devices)
		assert.ErrorIs(t, err, context.Canceled)
	}
}

// TestRequestAfterAMeetingInVain: a server without shared memory is not waited for until the end of the Dial.
func TestRequestAfterAMeetingInVain(t *testing.T) {
	t.Parallel() // it waits
	ln, err := engineListen()
	require.NoError(t, err)
	echo(t, ln)
	d := Dialer{Config: &Config{Devices: []string{"shm", "iwarp"}}}
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	c, err := d.DialContext(ctx, "sdp", ln.Addr().String())
	require.NoError(t, err)
	assert.Equal(t, "iwarp", c.(*Conn).Device())
	checkEcho(t, c)
}
