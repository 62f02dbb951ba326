package main

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/rdma"
	"github.com/gosdp/gosdp/rdma/iwarp"
)

// pair runs a server and a client, and returns what each printed.
func pair(t *testing.T, server, client []string) (served, called string, serverErr, clientErr error) {
	t.Helper()
	var out, in bytes.Buffer
	notes, w := io.Pipe()
	done := make(chan error, 1)
	go func() {
		err := run(append([]string{"-s", "-a", "127.0.0.1", "-p", "0"}, server...), &out, w)
		w.Close()
		done <- err
	}()
	line, err := bufio.NewReader(notes).ReadString('\n')
	require.NoError(t, err)
	host, port, err := net.SplitHostPort(strings.TrimSpace(strings.TrimPrefix(line, "listening on ")))
	require.NoError(t, err)
	clientErr = run(append([]string{"-c", "-a", host, "-p", port}, client...), &in, io.Discard)
	serverErr = <-done
	return out.String(), in.String(), serverErr, clientErr
}

func TestPings(t *testing.T) {
	for _, size := range []int{1, 2, 15, 16, 64, 4095, 4096, maxPing} {
		for _, option := range []string{"", "-nocrc", "-rtr", "-mpa=1", "-mpa=2"} {
			t.Run(strings.TrimLeft(strconv.Itoa(size)+option, "-"), func(t *testing.T) {
				var server []string
				client := []string{"-V", "-C", "20", "-S", strconv.Itoa(size)}
				switch option {
				case "-nocrc":
					server = append(server, option)
					client = append(client, option)
				case "-rtr", "-mpa=1", "-mpa=2":
					client = append(client, option)
				}
				_, called, serverErr, clientErr := pair(t, server, client)
				require.NoError(t, clientErr)
				require.NoError(t, serverErr)
				require.Contains(t, called, "20 pings of "+strconv.Itoa(size)+" bytes, ")
			})
		}
	}
}

// TestText: pings have the same text as rdma-core's rping.
func TestText(t *testing.T) {
	served, called, serverErr, clientErr := pair(t, []string{"-v"}, []string{"-v", "-C", "2", "-S", "32"})
	require.NoError(t, clientErr)
	require.NoError(t, serverErr)
	require.Equal(t, "server ping data: rdma-ping-0: ABCDEFGHIJKLMNOPQR\nserver ping data: rdma-ping-1: BCDEFGHIJKLMNOPQRS\n", served)
	require.Contains(t, called, "ping data: rdma-ping-0: ABCDEFGHIJKLMNOPQR\nping data: rdma-ping-1: BCDEFGHIJKLMNOPQRS\n")

	b := make([]byte, 90)
	fill(b, 57)
	require.Equal(t, "rdma-ping-57: z"+"ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`abcdefghijklmnopqrstuvwxyz"+"ABCDEFGHIJKLMNOP\x00", string(b))
}

// fakePeer accepts connections and handles each with the next function.
func fakePeer(t *testing.T, serve ...func(net.Conn)) (host, port string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for _, serve := range serve {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			serve(conn)
			conn.Close()
		}
	}()
	t.Cleanup(func() { listener.Close(); <-done })
	host, port, err = net.SplitHostPort(listener.Addr().String())
	require.NoError(t, err)
	return host, port
}

func TestRevision1IsTriedWhenThePeerCloses(t *testing.T) {
	revisions := make(chan int, 2)
	request := func(conn net.Conn) *iwarp.Request {
		r, err := iwarp.ReadRequest(conn)
		if err == nil {
			revisions <- r.Revision
		}
		return r
	}
	host, port := fakePeer(t,
		func(conn net.Conn) { request(conn) },
		func(conn net.Conn) {
			if qp, err := request(conn).Accept(iwarp.Config{}, nil); err == nil {
				newChannel(qp).pong(io.Discard)
				qp.Close()
			}
		})
	require.NoError(t, run([]string{"-c", "-a", host, "-p", port, "-C", "3", "-V"}, io.Discard, io.Discard))
	require.Equal(t, 2, <-revisions)
	require.Equal(t, 1, <-revisions)

	host, port = fakePeer(t, func(conn net.Conn) { request(conn) })
	require.ErrorIs(t, run([]string{"-c", "-a", host, "-p", port, "-mpa", "2"}, io.Discard, io.Discard), io.EOF)
	require.Equal(t, 2, <-revisions)
	require.Empty(t, revisions)
}

// TestValidation: the server's echoes have a wrong byte, or are not written at all.
func TestValidation(t *testing.T) {
	wrong := func(write bool) func(net.Conn) {
		return func(conn net.Conn) {
			r, err := iwarp.ReadRequest(conn)
			if err != nil {
				return
			}
			qp, err := r.Accept(iwarp.Config{}, nil)
			if err != nil {
				return
			}
			defer qp.Close()
			c := newChannel(qp)
			buffer := make([]byte, 64)
			source, _ := c.receive()
			c.read(buffer, source)
			c.send(advert{})
			buffer[40]++
			sink, _ := c.receive()
			if write {
				c.write(buffer, sink)
			}
			c.send(advert{})
			c.receive()
		}
	}
	for _, write := range []bool{true, false} {
		host, port := fakePeer(t, wrong(write))
		err := run([]string{"-c", "-a", host, "-p", port, "-C", "1", "-V"}, io.Discard, io.Discard)
		require.ErrorContains(t, err, "ping 0: received data differs from sent data")
	}
}

// TestServerChecksSizes: a client advertises a ping that is too large, or a buffer that
// is too small for the echo.
func TestServerChecksSizes(t *testing.T) {
	for name, lie := range map[string]func(c *channel, source advert) error{
		"ping": func(c *channel, source advert) error {
			source.size = maxPing + 1
			return c.send(source)
		},
		"echo": func(c *channel, source advert) error {
			if err := c.send(source); err != nil {
				return err
			}
			if _, err := c.receive(); err != nil {
				return err
			}
			source.size--
			return c.send(source)
		},
	} {
		t.Run(name, func(t *testing.T) {
			served := make(chan error, 1)
			host, port := fakePeer(t, func(conn net.Conn) {
				request, err := iwarp.ReadRequest(conn)
				if err != nil {
					served <- err
					return
				}
				qp, err := request.Accept(iwarp.Config{}, nil)
				if err != nil {
					served <- err
					return
				}
				served <- newChannel(qp).pong(io.Discard)
				qp.Abort()
			})
			qp, err := (&options{address: host, port: port}).connect()
			require.NoError(t, err)
			defer qp.Abort()
			c := newChannel(qp)
			ping := make([]byte, 64)
			fill(ping, 0)
			source, err := c.register(ping, rdma.RemoteRead)
			require.NoError(t, err)
			require.NoError(t, lie(c, source))
			require.Error(t, <-served)
		})
	}
}

func TestUsage(t *testing.T) {
	for _, args := range [][]string{{}, {"-s", "-c"}, {"-c", "-S", "0"}, {"-c", "-S", "65537"}, {"-c", "-C", "-1"}, {"-c", "more"}, {"-x"}} {
		require.Error(t, run(args, io.Discard, io.Discard), "%q", args)
	}
}
