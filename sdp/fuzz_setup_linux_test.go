package sdp

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gosdp/gosdp/test/watchdog"
	"github.com/gosdp/gosdp/wire"
)

// fuzzConfigs are of the end that the fuzzer talks to. The times are short: who
// is silent has closed.
var fuzzConfigs = []*Config{
	fuzzConfig("iwarp"),
}

func fuzzConfig(devices ...string) *Config {
	return &Config{
		Devices: devices, ReplyTimeout: time.Second,
		HandshakeTimeout: time.Second, StepUpTimeout: 2 * time.Millisecond, CRC: false,
	}
}

// unixSockets returns two connected sockets.
func unixSockets(t testing.TB) (a, b *net.UnixConn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	conn := func(fd int) *net.UnixConn {
		f := os.NewFile(uintptr(fd), "socket")
		defer f.Close()
		c, err := net.FileConn(f)
		require.NoError(t, err)
		return c.(*net.UnixConn)
	}
	return conn(fds[0]), conn(fds[1])
}

// recordedSetUp has two ends set up a connection, and returns the Request and the
// Reply.
func recordedSetUp(t testing.TB, config *Config) (request, reply []byte) {
	t.Helper()
	x, a := unixSockets(t)
	b, y := unixSockets(t)
	var said, answered bytes.Buffer
	var relaying sync.WaitGroup
	for _, way := range []struct {
		from, to *net.UnixConn
		note     *bytes.Buffer
	}{{a, b, &said}, {b, a, &answered}} {
		relaying.Go(func() {
			io.Copy(way.to, io.TeeReader(way.from, way.note))
			way.to.CloseWrite()
		})
	}
	patient := *config
	patient.StepUpTimeout = 5 * time.Second
	var serving sync.WaitGroup
	serving.Go(func() {
		s, err := Server(context.Background(), y, &patient)
		if err != nil {
			t.Error(err)
			return
		}
		io.Copy(s, s)
		s.Close()
	})
	c, err := Client(context.Background(), x, &patient)
	require.NoError(t, err)
	require.Equal(t, config.Devices[0], c.Device())
	c.Close()
	serving.Wait()
	relaying.Wait()
	a.Close()
	b.Close()
	return said.Bytes()[:20+int(binary.BigEndian.Uint16(said.Bytes()[18:]))], answered.Bytes()[:20+int(binary.BigEndian.Uint16(answered.Bytes()[18:]))]
}

// fuzzFPDU is a message in a Send, the n-th, without CRC.
func fuzzFPDU(n uint32, m wire.Message) []byte {
	b := m.AppendHeader(nil)
	b = append(b, m.Payload...)
	f := binary.BigEndian.AppendUint16(nil, uint16(18+len(b)))
	f = append(f, 0x41, 0x43, 0, 0, 0, 0, 0, 0, 0, 0)
	f = binary.BigEndian.AppendUint32(f, n)
	f = append(append(f, 0, 0, 0, 0), b...)
	for len(f)%4 != 0 {
		f = append(f, 0)
	}
	return append(f, 0, 0, 0, 0)
}

func fuzzMessage(mid wire.MID, seq uint32, payload string) wire.Message {
	return wire.Message{Header: wire.Header{MID: mid, Bufs: 64, MSeq: seq}, Payload: []byte(payload)}
}

// FuzzServer takes any bytes as what a client sends, from the first one on: the
// MPA Request with its offers, the decision, and what follows it. A client of
// plain TCP gets all its bytes to the program.
func FuzzServer(f *testing.F) {
	for i, config := range fuzzConfigs {
		request, _ := recordedSetUp(f, config)
		for _, decision := range []wire.Message{
			fuzzMessage(wire.MIDData, 1, ""), fuzzMessage(wire.MIDStepUp, 1, ""), fuzzMessage(wire.MIDData, 2, "early"),
		} {
			b := append(bytes.Clone(request), fuzzFPDU(1, decision)...)
			f.Add(byte(i), b)
			f.Add(byte(i), append(b, fuzzFPDU(2, fuzzMessage(wire.MIDData, 2, "hello"))...))
		}
		f.Add(byte(i), request[:len(request)-1])
		f.Add(byte(i), request[:15])
	}
	f.Add(byte(0), []byte("GET / HTTP/1.1\r\n\r\n"))
	fuzzSetUp(f, Server, false)
}

// FuzzClient takes any bytes as what a server answers: the MPA Reply with its
// choice, and what follows.
func FuzzClient(f *testing.F) {
	for i, config := range fuzzConfigs {
		_, reply := recordedSetUp(f, config)
		f.Add(byte(i), reply)
		f.Add(byte(i), append(bytes.Clone(reply), fuzzFPDU(1, fuzzMessage(wire.MIDData, 1, "hello"))...))
		f.Add(byte(i), reply[:len(reply)-1])
	}
	none, err := (&wire.Choice{Device: wire.DeviceNone}).Append(nil)
	require.NoError(f, err)
	rejection := append([]byte("MPA ID Rep Frame\x20\x01\x00"), byte(len(none)))
	f.Add(byte(0), append(rejection, none...))
	f.Add(byte(0), []byte("HTTP/1.1 400 Bad Request\r\n\r\n"))
	fuzzSetUp(f, Client, true)
}

// fuzzSetUp has one end set up with a peer that says what the fuzzer does, and no
// more.
func fuzzSetUp[C net.Conn](f *testing.F, up func(context.Context, net.Conn, *Config) (C, error), dialled bool) {
	f.Fuzz(func(t *testing.T, how byte, in []byte) {
		defer watchdog.Start()()
		if len(in) > 8192 {
			return
		}
		x, y := unixSockets(t)
		x.Write(in)
		x.CloseWrite()
		c, err := up(t.Context(), y, fuzzConfigs[int(how)%len(fuzzConfigs)])
		if err == nil {
			checkSetUp(t, c, in, dialled)
		}
		x.Close()
		y.Close()
	})
}

// checkSetUp checks a connection that has come up, whose peer has closed after
// what it sent: each call of its program returns.
func checkSetUp(t *testing.T, c net.Conn, in []byte, dialled bool) {
	t.Helper()
	require.NoError(t, c.SetDeadline(time.Now().Add(10*time.Second)))
	got, err := io.ReadAll(c)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("the end of the peer is not noticed")
	}
	conn, isSDP := c.(*Conn)
	switch {
	case isSDP:
		conn.SetLinger(0)
	case dialled:
		t.Errorf("Client returns a %T", c)
	case !bytes.Equal(in, got) && !bytes.HasPrefix(in, []byte("MPA ID Req Frame")):
		t.Errorf("of %q came %q", in, got)
	}
	if len(got) > len(in) {
		t.Errorf("%d bytes came, %d were sent", len(got), len(in))
	}
	c.Close()
}
