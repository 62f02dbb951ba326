package sdp

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/gosdp/gosdp/internal/handshake"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// serve has handle serve each connection to a plain TCP port, and counts them.
func serve(t *testing.T, handle func(c *net.TCPConn)) (address string, count *atomic.Int32) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var workers sync.WaitGroup
	count = new(atomic.Int32)
	workers.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			count.Add(1)
			workers.Go(func() {
				defer c.Close()
				handle(c.(*net.TCPConn))
			})
		}
	})
	t.Cleanup(func() {
		ln.Close()
		workers.Wait()
	})
	return ln.Addr().String(), count
}

// echoLines answers each line with itself, once it has come, and a line that is
// an MPA Request with bad.
func echoLines(bad func(c *net.TCPConn)) func(c *net.TCPConn) {
	return func(c *net.TCPConn) {
		r := bufio.NewReader(c)
		for {
			line, err := r.ReadString('\n')
			if strings.HasPrefix(line, "MPA ID") {
				bad(c)
				return
			}
			if err != nil {
				return
			}
			io.WriteString(c, line)
		}
	}
}

// plainServers are what a stranger may do with our Request.
var plainServers = []struct {
	name  string
	does  func(c *net.TCPConn)
	error string // of a Dial that wants SDP
}{
	{"garbage", func(c *net.TCPConn) { c.Write([]byte{0x15, 3, 1}); io.Copy(io.Discard, c) }, `answered "\x15\x03\x01"`},
	{"an error", func(c *net.TCPConn) { io.WriteString(c, "HTTP/1.1 400 Bad Request\r\n\r\n") }, `answered "HTTP/1.1 400 Bad"`},
	{"a close", func(c *net.TCPConn) { c.CloseWrite(); io.Copy(io.Discard, c) }, "connection closed"},
	{"a reset", func(c *net.TCPConn) { c.SetLinger(0) }, "connection reset"},
	{"a truncated Reply", func(c *net.TCPConn) {
		io.WriteString(c, "MPA ID Rep")
		c.CloseWrite()
		io.Copy(io.Discard, c)
	}, "connection closed"},
	{"a rejection", func(c *net.TCPConn) {
		io.WriteString(c, "MPA ID Rep Frame\x20\x01\x00\x00")
		io.Copy(io.Discard, c)
	}, "MPA Request rejected"},
	{"a violation of MPA", func(c *net.TCPConn) {
		io.WriteString(c, "MPA ID Rep Frame\x80\x01\x00\x00")
		io.Copy(io.Discard, c)
	}, "markers are required"},
	{"silence", func(c *net.TCPConn) { io.Copy(io.Discard, c) }, "no MPA Reply within 100ms"},
}

func TestDialPlainServer(t *testing.T) {
	for _, v := range plainServers {
		t.Run(v.name, func(t *testing.T) {
			d := Dialer{Config: &Config{Devices: []string{engineDevice}, ReplyTimeout: soon}}
			if v.name == "silence" {
				d.Config.ReplyTimeout = 100 * time.Millisecond
			}
			address, count := serve(t, echoLines(v.does))
			_, err := d.Dial("sdp", address)
			var plain *NotSDPError
			require.ErrorAs(t, err, &plain)
			assert.ErrorContains(t, err, "peer at "+address+" does not speak SDP: ")
			assert.ErrorContains(t, err, v.error)
			var op *net.OpError
			require.ErrorAs(t, err, &op)
			assert.Equal(t, "dial", op.Op)
			assert.Equal(t, "sdp", op.Net)
			assert.Equal(t, address, op.Addr.String())
			asked := int32(1)
			if v.name == "a reset" {
				asked = handshake.MaxRequests
			}
			// It may have accepted later than Dial gave up.
			require.Eventually(t, func() bool { return count.CompareAndSwap(asked, 0) }, soon, time.Millisecond)
			for i := range int32(3) {
				c, err := d.Dial("tcp", address)
				require.NoError(t, err)
				require.IsType(t, &net.TCPConn{}, c)
				checkEcho(t, c)
				assert.Equal(t, i+1, count.Load(), "it is not asked")
			}

			address, count = serve(t, echoLines(v.does))
			d.Config.Probe = loopback
			for i := range int32(3) {
				c, err := d.Dial("tcp", address)
				require.NoError(t, err)
				require.IsType(t, &net.TCPConn{}, c)
				checkEcho(t, c)
				assert.Equal(t, i+2, count.Load(), "it is asked once")
			}
		})
	}
}

func TestDialHTTPServer(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, "plain")
	}))
	defer server.Close()
	address := server.Listener.Addr().String()

	_, err := engineDial(address)
	require.Error(t, err)
	assert.ErrorContains(t, err, fmt.Sprintf(`peer at %s does not speak SDP: answered "HTTP/1.1 400 Bad"`, address))

	client := http.Client{Transport: &http.Transport{DialContext: new(Dialer).DialContext, DisableKeepAlives: true}}
	for range 2 {
		response, err := client.Get(server.URL)
		require.NoError(t, err)
		body, err := io.ReadAll(response.Body)
		response.Body.Close()
		require.NoError(t, err)
		assert.Equal(t, "plain", string(body))
	}
}

// TestDialGreeter dials a server that speaks first.
func TestDialGreeter(t *testing.T) {
	address, _ := serve(t, func(c *net.TCPConn) {
		io.WriteString(c, "SSH-2.0-x\r\n")
		io.Copy(io.Discard, c)
	})
	_, err := engineDial(address)
	assert.ErrorContains(t, err, `answered "SSH-2.0-x\r\n"`)
	c, err := Dial("tcp", address)
	require.NoError(t, err)
	defer c.Close()
	line, err := bufio.NewReader(c).ReadString('\n')
	assert.NoError(t, err)
	assert.Equal(t, "SSH-2.0-x\r\n", line)
}

// TestDialsWaitForNoOther: each asks for itself.
func TestDialsWaitForNoOther(t *testing.T) {
	const many = 8
	var asked sync.WaitGroup
	asked.Add(many)
	address, _ := serve(t, echoLines(func(c *net.TCPConn) { // answers nobody before all have asked
		asked.Done()
		asked.Wait()
		io.WriteString(c, "another protocol")
		io.Copy(io.Discard, c)
	}))
	d := Dialer{Config: &Config{Devices: []string{engineDevice}, Probe: loopback, ReplyTimeout: time.Hour}}
	var dials sync.WaitGroup
	for range many {
		dials.Go(func() {
			c, err := d.Dial("tcp", address)
			if assert.NoError(t, err) {
				checkEcho(t, c)
			}
		})
	}
	dials.Wait()
}

// TestHooksOfTheDialer are called as package net calls them.
func TestHooksOfTheDialer(t *testing.T) {
	address, _ := serve(t, echoLines(func(*net.TCPConn) {}))
	var called []string
	control := func(network, at string, _ syscall.RawConn) error {
		called = append(called, "Control "+network+" "+at)
		return nil
	}
	withContext := func(_ context.Context, network, at string, _ syscall.RawConn) error {
		called = append(called, "ControlContext "+network+" "+at)
		return nil
	}
	for _, nd := range []*net.Dialer{{Control: control}, {Control: control, ControlContext: withContext}} {
		for _, dial := range []func(string, string) (net.Conn, error){nd.Dial, (&Dialer{NetDialer: nd}).Dial} {
			c, err := dial("tcp", address)
			require.NoError(t, err)
			c.Close()
		}
	}
	assert.Equal(t, []string{
		"Control tcp4 " + address, "Control tcp4 " + address,
		"ControlContext tcp4 " + address, "ControlContext tcp4 " + address,
	}, called)
	refuse := errors.New("refused by the hook")
	d := Dialer{NetDialer: &net.Dialer{Control: func(string, string, syscall.RawConn) error { return refuse }}}
	_, err := d.Dial("tcp", address)
	assert.ErrorIs(t, err, refuse)
}

func TestDialEndsWithItsContext(t *testing.T) {
	asked := make(chan struct{}, 4)
	address, _ := serve(t, echoLines(func(c *net.TCPConn) { asked <- struct{}{}; io.Copy(io.Discard, c) }))
	d := Dialer{Config: &Config{Devices: []string{engineDevice}, Probe: loopback, ReplyTimeout: time.Hour}}
	for _, network := range []string{"tcp", "sdp"} {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() {
			_, err := d.DialContext(ctx, network, address)
			done <- err
		}()
		<-asked
		cancel()
		err := <-done
		assert.ErrorIs(t, err, context.Canceled)
		var op *net.OpError
		require.ErrorAs(t, err, &op)
		assert.Equal(t, network, op.Net)
	}
	_, err := DialTimeout("sdp", address, time.Nanosecond)
	var timeout net.Error
	require.ErrorAs(t, err, &timeout)
	assert.True(t, timeout.Timeout())
}

func TestDialFailsAsNetDoes(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	// One end of a connection: nobody will listen there.
	taken, err := net.Dial("tcp", ln.Addr().String())
	require.NoError(t, err)
	defer taken.Close()
	ln.Close()
	address := taken.LocalAddr().String()
	for _, network := range []string{"tcp", "tcp4", "sdp", "sdp4"} {
		_, err := Dial(network, address)
		assert.ErrorIs(t, err, syscall.ECONNREFUSED)
		assert.EqualError(t, err, "dial "+network+" "+address+": connect: connection refused")
	}
	for _, network := range []string{"udp", "udp", "sdp5"} {
		_, err := Dial(network, address)
		var unknown net.UnknownNetworkError
		require.ErrorAs(t, err, &unknown)
		assert.EqualError(t, err, "dial "+network+": unknown network "+network)
		_, err = Listen(network, address)
		assert.EqualError(t, err, "listen "+network+": unknown network "+network)
	}
	_, err = Dial("sdp", "127.0.0.1")
	assert.EqualError(t, err, "dial sdp: address 127.0.0.1: missing port in address")
}

// TestDialStrangerThatSpeaksMPA accepts the Request without knowing SDP.
func TestDialStrangerThatSpeaksMPA(t *testing.T) {
	for _, v := range []struct{ name, reply, error string }{
		{"no choice", "\x00\x01\x00\x00", "choice: magic"},
		{"no HelloAck", "\x00\x01\x00\x06SDP\x01\x06\x01", "HelloAck: Len"},
		{"another device", "\x00\x01\x00\x06SDP\x01\x06\x03", "chose verbs"},
	} {
		address, _ := serve(t, echoLines(func(c *net.TCPConn) {
			io.WriteString(c, "MPA ID Rep Frame"+v.reply)
			io.Copy(io.Discard, c)
		}))
		_, err := engineDial(address)
		assert.ErrorContains(t, err, v.error, v.name)
		var op *net.OpError
		assert.ErrorAs(t, err, &op)
		c, err := (&Dialer{Config: asking(nil)}).Dial("tcp", address)
		require.NoError(t, err, v.name)
		checkEcho(t, c)
	}
}

func TestDialerBoundsTheWholeCall(t *testing.T) {
	now := time.Now()
	for _, v := range []struct {
		d    net.Dialer
		want time.Duration
	}{
		{net.Dialer{Timeout: time.Minute}, time.Minute},
		{net.Dialer{Deadline: now.Add(time.Hour)}, time.Hour},
		{net.Dialer{Timeout: time.Minute, Deadline: now.Add(time.Hour)}, time.Minute},
		{net.Dialer{Timeout: time.Hour, Deadline: now.Add(time.Minute)}, time.Minute},
	} {
		d := Dialer{NetDialer: &v.d}
		ctx, cancel := d.bounded(t.Context())
		end, ok := ctx.Deadline()
		cancel()
		assert.True(t, ok)
		assert.WithinDuration(t, now.Add(v.want), end, 10*time.Second)
	}
	ctx, cancel := (&Dialer{NetDialer: new(net.Dialer)}).bounded(t.Context())
	defer cancel()
	_, ok := ctx.Deadline()
	assert.False(t, ok)
}

func TestNotSDPErrorKeepsItsCause(t *testing.T) {
	address, _ := serve(t, echoLines(func(c *net.TCPConn) { io.Copy(io.Discard, c) }))
	d := Dialer{Config: &Config{Devices: []string{engineDevice}, ReplyTimeout: 50 * time.Millisecond}}
	_, err := d.Dial("sdp", address)
	assert.True(t, errors.Is(err, os.ErrDeadlineExceeded))
}

// TestCancelIsHeard while the Reply is waited for.
func TestCancelIsHeard(t *testing.T) {
	told := make(chan struct{})
	//lint:ignore SA1019 programs use it
	d := Dialer{NetDialer: &net.Dialer{Cancel: told}}
	ctx, stop := d.bounded(context.Background())
	defer stop()
	assert.NoError(t, ctx.Err())
	close(told)
	<-ctx.Done()
}
