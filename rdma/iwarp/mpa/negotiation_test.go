package mpa

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/rdma"
)

// requested returns both halves after the Request has arrived.
func requested(t *testing.T, cfg Config, private string) (*Initiator, *Request) {
	t.Helper()
	initiator, b, err := Initiate(cfg, []byte(private))
	require.NoError(t, err)
	request := new(Request)
	missing, err := request.Receive(b)
	require.NoError(t, err)
	require.Zero(t, missing)
	assert.Equal(t, private, string(request.Private()))
	assert.Equal(t, max(cfg.Revision, 1), request.Revision())
	return initiator, request
}

func TestNegotiation(t *testing.T) {
	for _, v := range []struct {
		name                 string
		initiator, responder Config
		wantI, wantR         Params
	}{
		{"defaults", Config{}, Config{},
			Params{CRC: true, IRD: 16, ORD: 16}, Params{CRC: true, IRD: 16, ORD: 16}},
		{"no CRC", Config{NoCRC: true}, Config{NoCRC: true},
			Params{IRD: 16, ORD: 16}, Params{IRD: 16, ORD: 16}},
		{"CRC for the initiator", Config{}, Config{NoCRC: true},
			Params{CRC: true, IRD: 16, ORD: 16}, Params{CRC: true, IRD: 16, ORD: 16}},
		{"CRC for the responder", Config{NoCRC: true}, Config{},
			Params{CRC: true, IRD: 16, ORD: 16}, Params{CRC: true, IRD: 16, ORD: 16}},
		{"revision 1 does not negotiate Reads", Config{NoCRC: true, IRD: 300, ORD: 2, PeerToPeer: true}, Config{NoCRC: true, IRD: 3, ORD: 4, PeerToPeer: true},
			Params{IRD: 300, ORD: 2}, Params{IRD: 3, ORD: 4}},
		{"revision 2 lowers Reads", Config{NoCRC: true, Revision: 2, IRD: 5, ORD: 6}, Config{NoCRC: true, IRD: 4, ORD: 8},
			Params{IRD: 5, ORD: 4}, Params{IRD: 4, ORD: 5}},
		{"revision 2 names at most 128", Config{NoCRC: true, Revision: 2, IRD: 1000, ORD: 1000}, Config{NoCRC: true, IRD: 1000, ORD: 1000},
			Params{IRD: 128, ORD: 128}, Params{IRD: 128, ORD: 128}},
		{"peer to peer", Config{NoCRC: true, Revision: 2, PeerToPeer: true}, Config{NoCRC: true},
			Params{IRD: 16, ORD: 16, RTR: RTRWrite}, Params{IRD: 16, ORD: 16, RTR: RTRWrite}},
		{"peer to peer is not offered", Config{NoCRC: true, Revision: 2}, Config{NoCRC: true, PeerToPeer: true},
			Params{IRD: 16, ORD: 16}, Params{IRD: 16, ORD: 16}},
	} {
		t.Run(v.name, func(t *testing.T) {
			initiator, request := requested(t, v.initiator, "offers")
			reply, agreed, err := request.Accept(v.responder, []byte("choice"))
			require.NoError(t, err)
			assert.Equal(t, v.wantR, agreed)
			missing, err := initiator.Receive(reply)
			require.NoError(t, err)
			require.Zero(t, missing)
			assert.Equal(t, "choice", string(initiator.Private()))
			assert.Equal(t, v.wantI, initiator.Agreed())
		})
	}
}

func TestRejection(t *testing.T) {
	for _, revision := range []int{1, 2} {
		initiator, request := requested(t, Config{Revision: revision}, "")
		reply, err := request.Reject([]byte("no"))
		require.NoError(t, err)
		_, err = initiator.Receive(reply)
		var rejected *RejectError
		require.ErrorAs(t, err, &rejected)
		assert.Equal(t, "no", string(rejected.Private))
	}
}

// TestInitiatorFrames checks the bytes of the Request, and the result of each Reply of another
// implementation.
func TestInitiatorFrames(t *testing.T) {
	peerToPeer := Config{NoCRC: true, Revision: 2, PeerToPeer: true}
	for _, v := range []struct {
		name    string
		cfg     Config
		request string
		reply   string
		rtr     RTR
		what    string // of the violation; "" is a connection
	}{
		{"revision 1", Config{}, "\x40\x01\x00\x01x", "\x40\x01\x00\x00", RTRNone, ""},
		{"revision 2", Config{NoCRC: true, Revision: 2, IRD: 1, ORD: 1}, "\x10\x02\x00\x05\x00\x01\x00\x01x", "\x10\x02\x00\x04\x00\x01\x00\x01", RTRNone, ""},
		{"RTR is a Write", peerToPeer, "\x10\x02\x00\x05\x80\x10\xC0\x10x", "\x10\x02\x00\x04\x80\x01\x80\x01", RTRWrite, ""},
		{"RTR is a Read", peerToPeer, "\x10\x02\x00\x05\x80\x10\xC0\x10x", "\x10\x02\x00\x04\x80\x01\x40\x01", RTRRead, ""},
		{"Reads are left open", peerToPeer, "\x10\x02\x00\x05\x80\x10\xC0\x10x", "\x10\x02\x00\x04\x3F\xFF\x3F\xFF", RTRNone, ""},
		{"RTR is an empty FPDU", peerToPeer, "\x10\x02\x00\x05\x80\x10\xC0\x10x", "\x10\x02\x00\x04\xC0\x01\x00\x01", 0, "does not choose one of the offered RTR"},
		{"two RTR messages", peerToPeer, "\x10\x02\x00\x05\x80\x10\xC0\x10x", "\x10\x02\x00\x04\x80\x01\xC0\x01", 0, "does not choose one of the offered RTR"},
		{"RTR not offered", Config{NoCRC: true, Revision: 2}, "\x10\x02\x00\x05\x00\x10\x00\x10x", "\x10\x02\x00\x04\x80\x01\x80\x01", 0, "which was not offered"},
		{"ORD above our IRD", peerToPeer, "\x10\x02\x00\x05\x80\x10\xC0\x10x", "\x10\x02\x00\x04\x00\x01\x00\x11", 0, "ORD of 17 exceeds the IRD of 16"},
		{"revision 1 to revision 2", peerToPeer, "\x10\x02\x00\x05\x80\x10\xC0\x10x", "\x00\x01\x00\x00", 0, "Reply has MPA revision 1"},
		{"revision 2 without S", peerToPeer, "\x10\x02\x00\x05\x80\x10\xC0\x10x", "\x00\x02\x00\x04\x00\x01\x00\x01", 0, "without S"},
		{"half the words", peerToPeer, "\x10\x02\x00\x05\x80\x10\xC0\x10x", "\x10\x02\x00\x02\x00\x01", 0, "want at least 4"},
	} {
		t.Run(v.name, func(t *testing.T) {
			initiator, request, err := Initiate(v.cfg, []byte("x"))
			require.NoError(t, err)
			assert.Equal(t, RequestKey+v.request, string(request))
			missing, err := initiator.Receive([]byte(replyKey + v.reply))
			if v.what != "" {
				var violation *rdma.ProtocolError
				require.ErrorAs(t, err, &violation)
				assert.Contains(t, violation.What, v.what)
				return
			}
			require.NoError(t, err)
			require.Zero(t, missing)
			assert.Equal(t, v.rtr, initiator.Agreed().RTR)
		})
	}
}

// TestResponderFrames checks the Replies to Requests of other implementations.
func TestResponderFrames(t *testing.T) {
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
			var request Request
			_, err := request.Receive([]byte(RequestKey + v.request))
			require.NoError(t, err)
			reply, _, err := request.Accept(Config{NoCRC: true}, []byte("y"))
			require.NoError(t, err)
			assert.Equal(t, replyKey+v.reply, string(reply))
		})
	}
}

func TestInitiateRefusesUnknownRevision(t *testing.T) {
	_, _, err := Initiate(Config{Revision: 3}, nil)
	require.ErrorContains(t, err, "MPA revision 3")
}
