package handshake

import (
	"encoding/binary"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/internal/handshake/handshaketest"
	"github.com/gosdp/gosdp/internal/localpeer"
	"github.com/gosdp/gosdp/rdma"
	"github.com/gosdp/gosdp/wire"
)

// TestPrompt is what the accepting goroutine does by itself, and what it leaves
// for a handshake, of which it has consumed nothing then.
func TestPrompt(t *testing.T) {
	offering := func(ticket rdma.Ticket) func(*testing.T, net.Conn) string {
		return func(t *testing.T, c net.Conn) string {
			o := wire.Offers{
				Devices: []wire.Device{wire.DeviceSHM},
				Client:  c.LocalAddr().(*net.TCPAddr).AddrPort(),
				Server:  c.RemoteAddr().(*net.TCPAddr).AddrPort(),
				Ticket:  ticket, Channel: wire.IdleChannel,
			}
			o.Host, o.HasHost = HostID([16]byte{1})
			return handshaketest.Request(t, o, handshaketest.Hello())
		}
	}
	says := func(s string) func(*testing.T, net.Conn) string {
		return func(*testing.T, net.Conn) string { return s }
	}
	for _, v := range []struct {
		name           string
		first          func(*testing.T, net.Conn) string
		sdpOnly        bool
		resumed, plain bool
		unread         bool
	}{
		{name: "resumed", first: offering(handshaketest.IdleTicket), resumed: true},
		{name: "resumed, after it something else", first: func(t *testing.T, c net.Conn) string {
			return offering(handshaketest.IdleTicket)(t, c) + "more"
		}, resumed: true, unread: true},
		{name: "another ticket", first: offering(rdma.Ticket{9}), unread: true},
		{name: "part of a Request", first: func(t *testing.T, c net.Conn) string {
			return offering(handshaketest.IdleTicket)(t, c)[:60]
		}, unread: true},
		{name: "all of a Request but its last byte", first: func(t *testing.T, c net.Conn) string {
			whole := []byte(offering(handshaketest.IdleTicket)(t, c))
			binary.BigEndian.PutUint16(whole[len(whole)-2:], 256) // whose last byte is 0: all the same if it is not looked at
			return string(whole[:len(whole)-1])
		}, unread: true},
		{name: "a Request that offers nothing", first: says(handshaketest.Frame([]byte("hello"))), unread: true},
		{name: "a Request that is too long", first: says(handshaketest.Frame(nil)[:18] + "\xff\xff" + "private"), unread: true},
		{name: "part of a key", first: says("MPA"), unread: true},
		{name: "nothing", first: says("")},
		{name: "plain", first: says("GET"), plain: true, unread: true},
		{name: "plain, to SDP only", first: says("GET"), sdpOnly: true, unread: true},
	} {
		t.Run(v.name, func(t *testing.T) {
			handshaketest.SHM.Reset()
			channel, _ := handshaketest.QueuePairs(t)
			handshaketest.SHM.Kept = channel
			cfg := testConfig()
			cfg.Devices = []wire.Device{wire.DeviceSHM, wire.DeviceIWARP}
			cfg.SDPOnly = v.sdpOnly
			s := NewServer(cfg)
			t.Cleanup(s.Close)
			server, client := handshaketest.TCPPair(t)
			rc, err := client.SyscallConn()
			require.NoError(t, err)
			require.NoError(t, localpeer.Mark(rc, localpeer.Dialler))
			said := v.first(t, client)
			client.Write([]byte(said))
			whole := make([]byte, len(said)+1)
			require.Eventually(t, func() bool {
				n, _ := first(server, whole)
				return n == len(said)
			}, time.Minute, time.Millisecond)

			h := &Incoming{Server: s, conn: server, expected: certain}
			h.peek()
			in, err := h.Prompt()
			require.NoError(t, err)
			switch {
			case v.resumed:
				require.NotNil(t, in)
				assert.Same(t, channel, in.QP)
				assert.Equal(t, "shm", in.Device)
				flags, private := handshaketest.ReadReply(t, client)
				assert.Zero(t, flags&handshaketest.ReplyRejected)
				choice, ack, err := wire.ParseChoice(private)
				require.NoError(t, err)
				assert.Equal(t, wire.Choice{Device: wire.DeviceSHM, Taken: true}, choice)
				hello, err := wire.ParseHelloAck(ack)
				require.NoError(t, err)
				hello.MinV = in.Local.MinV // which Acks alone have
				assert.Equal(t, in.Local, hello)
				defer func() {
					server.Close()
					n, _ := client.Read(whole)
					assert.Zero(t, n, "there is no second answer")
				}()
				_, said, _ = strings.Cut(said, string(handshaketest.Hello()))
			case v.plain:
				require.NotNil(t, in)
				assert.Nil(t, in.QP)
				assert.Same(t, server, in.Conn)
			default:
				assert.Nil(t, in)
			}
			assert.False(t, handshaketest.SHM.Met())
			if !v.unread {
				said = ""
			}
			require.NoError(t, client.CloseWrite())
			got, err := io.ReadAll(server)
			require.NoError(t, err)
			assert.Equal(t, said, string(got))
		})
	}
}

// TestRequestIsNotPlain has the Request of a client that gave up arrive after the kernel was
// asked about the client, so that none is expected. The program must not get it.
func TestRequestIsNotPlain(t *testing.T) {
	server, client := handshaketest.TCPPair(t)
	s := NewServer(testConfig())
	defer s.Close()
	h := &Incoming{Server: s, conn: server, expected: nothing}
	require.NotNil(t, h.Plain())
	require.True(t, h.noneComes())
	request := handshaketest.Request(t, handshaketest.Offers(), handshaketest.Hello())
	_, err := client.Write([]byte(request))
	require.NoError(t, err)
	require.Eventually(t, func() bool { return h.Plain() == nil }, time.Minute, time.Millisecond)
	assert.False(t, h.noneComes(), "later, too, the program would get it")
}
