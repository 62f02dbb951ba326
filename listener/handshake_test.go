package listener

import (
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/internal/handshake"
	"github.com/gosdp/gosdp/internal/handshake/handshaketest"
	"github.com/gosdp/gosdp/rdma"
	"github.com/gosdp/gosdp/rdma/iwarp"
	"github.com/gosdp/gosdp/rdma/iwarp/mpa"
	"github.com/gosdp/gosdp/wire"
)

// connect is a client up to its decision.
func connect(t *testing.T, l addressed, cfg iwarp.Config) *iwarp.QueuePair {
	t.Helper()
	qp, private, err := iwarp.Connect(dial(t, l, ""), cfg, handshaketest.Private(t, handshaketest.Offers(), handshaketest.Hello()))
	require.NoError(t, err)
	t.Cleanup(func() { qp.Abort() })
	choice, ack, err := wire.ParseChoice(private)
	require.NoError(t, err)
	require.Equal(t, wire.Choice{Device: wire.DeviceIWARP}, choice)
	_, err = wire.ParseHelloAck(ack)
	require.NoError(t, err)
	qp.ProvideReceive(32, 8192)
	return qp
}

func TestClientOfSDP(t *testing.T) {
	l := listen(t, testConfig(), 8)
	qp := connect(t, l, iwarp.Config{})
	handshaketest.Send(t, qp, handshaketest.Stay())
	hello := wire.Message{Header: wire.Header{MID: wire.MIDData, Bufs: 32, MSeq: 2}, Payload: []byte("hello")}
	handshaketest.Send(t, qp, hello)

	in := l.accept(t)
	require.NotNil(t, in.QP)
	assert.Equal(t, "iwarp", in.Device)
	assert.Equal(t, wire.Hello{Bufs: 64, MaxAdverts: 4, LocalRcvSz: 4096, IRD: 8, ORD: 4}, in.Local)
	assert.Equal(t, wire.Hello{Bufs: 32, MaxAdverts: 2, LocalRcvSz: 8192, IRD: 4, ORD: 8, MinV: 1}, in.Peer)
	assert.Equal(t, &wire.Header{MID: wire.MIDData, Bufs: 32, MSeq: 1, Len: wire.HeaderLen}, in.First)
	assert.Equal(t, 4, in.QP.Limits().ORD)

	var wcs [4]rdma.Completion
	n, err := in.QP.Wait(wcs[:])
	require.NoError(t, err)
	require.Equal(t, 1, n, "what follows the decision is left to the program")
	var m wire.Message
	require.NoError(t, m.Parse(wcs[0].Buffer.Bytes))
	assert.Equal(t, "hello", string(m.Payload))
	wcs[0].Buffer.Release()
}

func TestClientOfTCP(t *testing.T) {
	l := listen(t, testConfig(), 8)
	c := dial(t, l, "GET / HTTP/1.1")
	in := l.accept(t)
	assert.Nil(t, in.QP)
	require.IsType(t, &net.TCPConn{}, in.Conn)
	c.CloseWrite()
	got, err := io.ReadAll(in.Conn)
	assert.NoError(t, err)
	assert.Equal(t, "GET / HTTP/1.1", string(got))
}

// TestServerSpeaksFirst has a client that waits for the server. It is plain at once.
func TestServerSpeaksFirst(t *testing.T) {
	l := listen(t, testConfig(), 8)
	c := dialPlain(t, l, "")
	in := l.accept(t)
	require.Nil(t, in.QP)
	in.Conn.Write([]byte("SSH-2.0"))
	b := make([]byte, 7)
	_, err := io.ReadFull(c, b)
	assert.NoError(t, err)
}

// TestClientMustSpeakSDP: a client that has not sent its Request in time is reset, and so dials again. A
// client that speaks something else is closed, which resets it because its bytes are unread.
func TestClientMustSpeakSDP(t *testing.T) {
	for _, first := range []string{"GET / HTTP/1.1", "MPA ID", ""} {
		cfg := testConfig()
		cfg.SDPOnly = true
		cfg.HandshakeTimeout = 50 * time.Millisecond
		l := listen(t, cfg, 8)
		c := dial(t, l, first)
		_, err := c.Read(make([]byte, 1))
		assert.True(t, iwarp.IsReset(err), "%q: %v", first, err)
	}
}

func TestCRC(t *testing.T) {
	here := handshaketest.Offers()
	here.Host, here.HasHost = handshake.HostID()
	require.True(t, here.HasHost)
	elsewhere := here
	elsewhere.Host = wire.NewHostID([16]byte{1}, "another host")
	for _, v := range []struct {
		name   string
		offers wire.Offers
		always bool
		want   byte
	}{
		{"on one host", here, false, 0},
		{"on one host, asked for", here, true, handshaketest.ReplyCRC},
		{"on another host", elsewhere, false, handshaketest.ReplyCRC},
		{"on an unknown host", handshaketest.Offers(), false, handshaketest.ReplyCRC},
	} {
		t.Run(v.name, func(t *testing.T) {
			cfg := testConfig()
			cfg.CRC = v.always
			l := listen(t, cfg, 8)
			flags, _ := handshaketest.ReadReply(t, dial(t, l, handshaketest.Request(t, v.offers, handshaketest.Hello())))
			assert.Equal(t, v.want, flags)
		})
	}
}

// TestNoDeviceInCommon has both ends go on as plain TCP on the connection.
func TestNoDeviceInCommon(t *testing.T) {
	verbs := handshaketest.Offers()
	verbs.Devices = []wire.Device{wire.DeviceVerbs}
	for _, v := range []struct {
		name    string
		devices []wire.Device
		offers  wire.Offers
	}{
		{"server has none", nil, handshaketest.Offers()},
		{"client has another", []wire.Device{wire.DeviceIWARP}, verbs},
	} {
		t.Run(v.name, func(t *testing.T) {
			cfg := testConfig()
			cfg.Devices = append([]wire.Device{wire.Device(9)}, v.devices...)
			l := listen(t, cfg, 8)
			c := dial(t, l, handshaketest.Request(t, v.offers, handshaketest.Hello()))
			flags, private := handshaketest.ReadReply(t, c)
			assert.Equal(t, byte(handshaketest.ReplyRejected), flags)
			choice, rest, err := wire.ParseChoice(private)
			require.NoError(t, err)
			assert.Equal(t, wire.DeviceNone, choice.Device)
			assert.Empty(t, rest)

			in := l.accept(t)
			assert.Nil(t, in.QP)
			c.Write([]byte("plain"))
			c.CloseWrite()
			got, err := io.ReadAll(in.Conn)
			assert.NoError(t, err)
			assert.Equal(t, "plain", string(got))
		})
		t.Run(v.name+", and SDP is a must", func(t *testing.T) {
			cfg := testConfig()
			cfg.Devices, cfg.SDPOnly = v.devices, true
			l := listen(t, cfg, 8)
			c := dial(t, l, handshaketest.Request(t, v.offers, handshaketest.Hello()))
			flags, private := handshaketest.ReadReply(t, c)
			assert.Equal(t, byte(handshaketest.ReplyRejected), flags)
			assert.Empty(t, private)
			_, err := c.Read(make([]byte, 1))
			assert.Equal(t, io.EOF, err)
		})
	}
}

// TestBadRequests end their own connection, and the next client is served.
func TestBadRequests(t *testing.T) {
	good := handshaketest.Private(t, handshaketest.Offers(), handshaketest.Hello())
	hello := func(change func(b []byte)) []byte {
		b := handshaketest.Hello()
		change(b)
		return b
	}
	for _, v := range []struct {
		name     string
		request  string
		err      string
		rejected bool
	}{
		{"cut short", handshaketest.Frame(good)[:40], "truncated after 40 of", false},
		{"oversized", mpa.RequestKey + "\x00\x01\x02\x01", "513 bytes", false},
		{"markers", mpa.RequestKey + "\x80\x01\x00\x00", "markers", false},
		{"revision 9", mpa.RequestKey + "\x00\x09\x00\x00", "revision 9", false},
		{"no private data", handshaketest.Frame(nil), "offers: magic", true},
		{"another program's", handshaketest.Frame([]byte("rping")), "offers: magic", true},
		{"no Hello", handshaketest.Frame(good[:len(good)-wire.HelloLen]), "Hello: Len", true},
		{"half a Hello", handshaketest.Frame(good[:len(good)-1]), "Hello: Len", true},
		{"another major version", handshaketest.Request(t, handshaketest.Offers(), hello(func(b []byte) { b[16] = 0x22 })), "MajV", true},
		{"two buffers", handshaketest.Request(t, handshaketest.Offers(), hello(func(b []byte) { b[3] = 2 })), "Bufs", true},
		{"absurd size", handshaketest.Request(t, handshaketest.Offers(), hello(func(b []byte) { b[24] = 0xFF })), "LocalRcvSz", true},
	} {
		t.Run(v.name, func(t *testing.T) {
			cfg := testConfig()
			l := listen(t, cfg, 8)
			server, client := handshaketest.TCPPair(t)
			client.Write([]byte(v.request))
			client.CloseWrite()
			_, err := handshake.Serve(t.Context(), server, cfg)
			require.ErrorContains(t, err, v.err)
			client.SetDeadline(time.Now().Add(time.Minute))
			if v.rejected {
				flags, private := handshaketest.ReadReply(t, client)
				assert.Equal(t, byte(handshaketest.ReplyRejected), flags)
				assert.Empty(t, private)
			}
			_, err = client.Read(make([]byte, 1))
			assert.Error(t, err)

			dial(t, l, v.request).Close()
			handshaketest.Send(t, connect(t, l, iwarp.Config{}), handshaketest.Stay())
			assert.NotNil(t, l.accept(t).QP)
		})
	}
}

// TestSlowHandshakesRunBesideEachOther has one client wait in each stage.
func TestSlowHandshakesRunBesideEachOther(t *testing.T) {
	l := listen(t, testConfig(), 8)
	whole := handshaketest.Request(t, handshaketest.Offers(), handshaketest.Hello())
	dial(t, l, "")
	dial(t, l, whole[:3])
	dial(t, l, whole[:30])
	undecided := connect(t, l, iwarp.Config{})
	handshaketest.Send(t, connect(t, l, iwarp.Config{}), handshaketest.Stay())
	first := l.accept(t)
	assert.NotNil(t, first.QP)
	handshaketest.Send(t, undecided, handshaketest.Stay())
	assert.NotNil(t, l.accept(t).QP)
}

func TestHandshakeEndsWithItsTime(t *testing.T) {
	whole := handshaketest.Request(t, handshaketest.Offers(), handshaketest.Hello())
	cfg := testConfig()
	cfg.HandshakeTimeout = 20 * time.Millisecond
	l := listen(t, cfg, 8)
	got, err := io.ReadAll(dial(t, l, whole[:30]))
	assert.True(t, iwarp.IsReset(err), "a client that was only slow connects again: %v", err)
	assert.Empty(t, got)
}
