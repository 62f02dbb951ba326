package iwarp

import (
	"io"
	"net"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/rdma"
)

// negotiation runs Connect against answer over a TCP connection.
func negotiation(t *testing.T, cfg Config, private string, answer func(c net.Conn)) (*QueuePair, string, error) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	client, err := net.Dial("tcp", ln.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { client.Close() })
	server, err := ln.Accept()
	require.NoError(t, err)
	t.Cleanup(func() { server.Close() })
	done := make(chan struct{})
	go func() {
		defer close(done)
		answer(server)
	}()
	q, got, err := Connect(client, cfg, []byte(private))
	<-done
	return q, string(got), err
}

func TestNegotiation(t *testing.T) {
	for _, v := range []struct {
		name                 string
		initiator, responder Config
		wantI, wantR         params // except initiator and maxULPDU
	}{
		{"defaults", Config{}, Config{},
			params{crc: true, ird: 16, ord: 16}, params{crc: true, ird: 16, ord: 16}},
		{"no CRC", Config{NoCRC: true}, Config{NoCRC: true},
			params{ird: 16, ord: 16}, params{ird: 16, ord: 16}},
		{"CRC for the initiator", Config{}, Config{NoCRC: true},
			params{crc: true, ird: 16, ord: 16}, params{crc: true, ird: 16, ord: 16}},
		{"CRC for the responder", Config{NoCRC: true}, Config{},
			params{crc: true, ird: 16, ord: 16}, params{crc: true, ird: 16, ord: 16}},
		{"revision 1 does not negotiate Reads", Config{NoCRC: true, IRD: 300, ORD: 2, PeerToPeer: true}, Config{NoCRC: true, IRD: 3, ORD: 4, PeerToPeer: true},
			params{ird: 300, ord: 2}, params{ird: 3, ord: 4}},
		{"revision 2 lowers Reads", Config{NoCRC: true, Revision: 2, IRD: 5, ORD: 6}, Config{NoCRC: true, IRD: 4, ORD: 8},
			params{ird: 5, ord: 4}, params{ird: 4, ord: 5}},
		{"revision 2 names at most 128", Config{NoCRC: true, Revision: 2, IRD: 1000, ORD: 1000}, Config{NoCRC: true, IRD: 1000, ORD: 1000},
			params{ird: 128, ord: 128}, params{ird: 128, ord: 128}},
		{"peer to peer", Config{NoCRC: true, Revision: 2, PeerToPeer: true}, Config{NoCRC: true},
			params{ird: 16, ord: 16, rtr: rtrWrite}, params{ird: 16, ord: 16, rtr: rtrWrite}},
		{"peer to peer is not offered", Config{NoCRC: true, Revision: 2}, Config{NoCRC: true, PeerToPeer: true},
			params{ird: 16, ord: 16}, params{ird: 16, ord: 16}},
	} {
		t.Run(v.name, func(t *testing.T) {
			var responder *QueuePair
			initiator, private, err := negotiation(t, v.initiator, "offers", func(c net.Conn) {
				r, err := ReadRequest(c)
				if assert.NoError(t, err) {
					assert.Equal(t, "offers", string(r.Private))
					assert.Equal(t, !v.initiator.NoCRC, r.CRC)
					responder, err = r.Accept(v.responder, []byte("choice"))
					assert.NoError(t, err)
				}
			})
			require.NoError(t, err)
			defer initiator.Close()
			defer responder.Close()
			assert.Equal(t, "choice", private)
			v.wantI.initiator = true
			v.wantI.maxULPDU, v.wantR.maxULPDU = initiator.p.maxULPDU, responder.p.maxULPDU
			assert.Equal(t, v.wantI, initiator.p)
			assert.Equal(t, v.wantR, responder.p)
		})
	}
}

func TestRejection(t *testing.T) {
	for _, revision := range []int{1, 2} {
		_, _, err := negotiation(t, Config{Revision: revision}, "", func(c net.Conn) {
			r, err := ReadRequest(c)
			if assert.NoError(t, err) {
				assert.Equal(t, revision, r.Revision)
				assert.NoError(t, r.Reject([]byte("no")))
			}
		})
		var rejected *RejectError
		require.ErrorAs(t, err, &rejected)
		assert.Equal(t, "no", string(rejected.Private))
	}
}

// TestInitiatorFrames checks the bytes on the wire, and the result of each Reply of another
// implementation.
func TestInitiatorFrames(t *testing.T) {
	peerToPeer := Config{NoCRC: true, Revision: 2, PeerToPeer: true}
	for _, v := range []struct {
		name    string
		cfg     Config
		request string
		reply   string
		rtr     rtrKind
		what    string // of the violation; "" is a connection
	}{
		{"revision 1", Config{}, "\x40\x01\x00\x01x", "\x40\x01\x00\x00", rtrNone, ""},
		{"revision 2", Config{NoCRC: true, Revision: 2, IRD: 1, ORD: 1}, "\x10\x02\x00\x05\x00\x01\x00\x01x", "\x10\x02\x00\x04\x00\x01\x00\x01", rtrNone, ""},
		{"RTR is a Write", peerToPeer, "\x10\x02\x00\x05\x80\x10\xC0\x10x", "\x10\x02\x00\x04\x80\x01\x80\x01", rtrWrite, ""},
		{"RTR is a Read", peerToPeer, "\x10\x02\x00\x05\x80\x10\xC0\x10x", "\x10\x02\x00\x04\x80\x01\x40\x01", rtrRead, ""},
		{"Reads are left open", peerToPeer, "\x10\x02\x00\x05\x80\x10\xC0\x10x", "\x10\x02\x00\x04\x3F\xFF\x3F\xFF", rtrNone, ""},
		{"RTR is an empty FPDU", peerToPeer, "\x10\x02\x00\x05\x80\x10\xC0\x10x", "\x10\x02\x00\x04\xC0\x01\x00\x01", 0, "does not choose one of the offered RTR"},
		{"two RTR messages", peerToPeer, "\x10\x02\x00\x05\x80\x10\xC0\x10x", "\x10\x02\x00\x04\x80\x01\xC0\x01", 0, "does not choose one of the offered RTR"},
		{"RTR not offered", Config{NoCRC: true, Revision: 2}, "\x10\x02\x00\x05\x00\x10\x00\x10x", "\x10\x02\x00\x04\x80\x01\x80\x01", 0, "which was not offered"},
		{"ORD above our IRD", peerToPeer, "\x10\x02\x00\x05\x80\x10\xC0\x10x", "\x10\x02\x00\x04\x00\x01\x00\x11", 0, "ORD of 17 exceeds the IRD of 16"},
		{"revision 1 to revision 2", peerToPeer, "\x10\x02\x00\x05\x80\x10\xC0\x10x", "\x00\x01\x00\x00", 0, "Reply has MPA revision 1"},
		{"revision 2 without S", peerToPeer, "\x10\x02\x00\x05\x80\x10\xC0\x10x", "\x00\x02\x00\x04\x00\x01\x00\x01", 0, "without S"},
		{"half the words", peerToPeer, "\x10\x02\x00\x05\x80\x10\xC0\x10x", "\x10\x02\x00\x02\x00\x01", 0, "want at least 4"},
	} {
		t.Run(v.name, func(t *testing.T) {
			q, _, err := negotiation(t, v.cfg, "x", func(c net.Conn) {
				b := make([]byte, KeyLen+len(v.request))
				_, err := io.ReadFull(c, b)
				assert.NoError(t, err)
				assert.Equal(t, RequestKey+v.request, string(b))
				c.Write([]byte(replyKey + v.reply))
			})
			if v.what != "" {
				var violation *rdma.ProtocolError
				require.ErrorAs(t, err, &violation)
				assert.Contains(t, violation.What, v.what)
				return
			}
			require.NoError(t, err)
			defer q.Close()
			assert.Equal(t, v.rtr, q.p.rtr)
		})
	}
}

// TestResponderFrames checks the Replies to Requests of other implementations.
func TestResponderFrames(t *testing.T) {
	cfg := Config{NoCRC: true}
	for _, v := range []struct{ name, request, reply string }{
		{"siw", "\x10\x02\x00\x04\x00\x01\x00\x01", "\x10\x02\x00\x05\x00\x01\x00\x01y"},
		{"siw, reserved bits as flags", "\x1F\x02\x00\x04\x00\x01\x00\x01", "\x10\x02\x00\x05\x00\x01\x00\x01y"},
		{"CRC", "\x40\x01\x00\x00", "\x40\x01\x00\x01y"},
		{"S in revision 1 is a reserved bit", "\x10\x01\x00\x00", "\x00\x01\x00\x01y"},
		{"revision 2 without S", "\x00\x02\x00\x00", "\x00\x02\x00\x01y"},
		{"all RTR messages", "\x10\x02\x00\x04\xC0\x01\xC0\x01", "\x10\x02\x00\x05\x80\x01\x80\x01y"},
		{"a Read", "\x10\x02\x00\x04\x80\x01\x40\x01", "\x10\x02\x00\x05\x80\x01\x40\x01y"},
		{"an empty FPDU alone", "\x10\x02\x00\x04\xC0\x01\x00\x01", "\x10\x02\x00\x05\x00\x01\x00\x01y"},
		{"Reads are left open", "\x10\x02\x00\x04\x3F\xFF\x3F\xFF", "\x10\x02\x00\x05\x00\x10\x00\x10y"},
	} {
		t.Run(v.name, func(t *testing.T) {
			c, peer := net.Pipe()
			defer c.Close()
			defer peer.Close()
			got := make(chan string, 1)
			go func() {
				peer.Write([]byte(RequestKey + v.request))
				b := make([]byte, KeyLen+len(v.reply))
				io.ReadFull(peer, b)
				got <- string(b)
			}()
			r, err := ReadRequest(c)
			require.NoError(t, err)
			q, err := r.Accept(cfg, []byte("y"))
			require.NoError(t, err)
			defer q.Close()
			assert.Equal(t, replyKey+v.reply, <-got)
		})
	}
}

func TestConnectRefusesWhatItCannotSend(t *testing.T) {
	var none writes
	_, _, err := Connect(&none, Config{Revision: 3}, nil)
	require.ErrorContains(t, err, "MPA revision 3")
	_, _, err = Connect(&none, Config{Revision: 2}, make([]byte, 252))
	require.ErrorContains(t, err, "private data of 256 bytes")
	assert.Empty(t, none.each)
}

func TestNoQueuePairWithoutReply(t *testing.T) {
	var none writes
	asked, err := Ask(&none, Config{}, []byte("offers"))
	require.NoError(t, err)
	_, err = asked.QueuePair()
	assert.ErrorContains(t, err, "no MPA Reply")
}

func TestMaxULPDU(t *testing.T) {
	var stranger writes // not a socket: 1,460
	for _, v := range []struct{ asked, want int }{
		{0, 1460 - 6},
		{64768, 64768},
		{1, minULPDU},
		{1 << 20, 65535},
	} {
		cfg := Config{MaxULPDU: v.asked}
		assert.Equal(t, v.want, cfg.maxULPDU(&stranger), "%d asked for", v.asked)
	}
}

// TestSegmentsFitIntoTCPs: FPDUs end with the TCP segment of a real connection.
func TestSegmentsFitIntoTCPs(t *testing.T) {
	q, _, err := negotiation(t, Config{}, "", func(c net.Conn) {
		c.Write([]byte(replyKey + "\x00\x01\x00\x00"))
	})
	require.NoError(t, err)
	defer q.Close()
	assert.Zero(t, (q.p.maxULPDU+lengthLen+crcLen)%4)
	assert.GreaterOrEqual(t, q.p.maxULPDU, 536-lengthLen-crcLen)
}
