package mpa

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/rdma"
	"github.com/gosdp/gosdp/test/watchdog"
)

var frameVectors = []struct {
	name  string
	key   string
	bytes string
	frame frame
}{
	// The smallest frame of RFC 5044 §7.1.1.
	{"bare Request", RequestKey, "MPA ID Req Frame\x00\x01\x00\x00", frame{revision: 1, private: []byte{}}},
	{"Request with CRC", RequestKey, "MPA ID Req Frame\x40\x01\x00\x03abc", frame{flags: flagCRC, revision: 1, length: 3, private: []byte("abc")}},
	{"rejection", replyKey, "MPA ID Rep Frame\x20\x01\x00\x01x", frame{flags: flagRejected, revision: 1, length: 1, private: []byte("x")}},
	// Sent by Linux's siw to rping.
	{"siw's Request", RequestKey, "MPA ID Req Frame\x10\x02\x00\x04\x00\x01\x00\x01", frame{flags: flagEnhanced, revision: 2, length: 4, words: words{ird: 1, ord: 1}, private: []byte{}}},
}

// TestFrameVectors: a frame is whole with its last byte, and what follows is not part of it.
func TestFrameVectors(t *testing.T) {
	for _, v := range frameVectors {
		t.Run(v.name, func(t *testing.T) {
			sent, err := v.frame.bytes(v.key)
			require.NoError(t, err)
			assert.Equal(t, v.bytes, string(sent))

			var f frame
			for n := range len(v.bytes) {
				missing, err := f.parse([]byte(v.bytes[:n]), v.key, nil)
				require.NoError(t, err)
				want := len(v.bytes) - n
				if n < headerLen {
					want = headerLen - n
				}
				require.Equal(t, want, missing, "%d bytes", n)
			}
			missing, err := f.parse([]byte(v.bytes+"FPDU"), v.key, nil)
			require.NoError(t, err)
			assert.Zero(t, missing)
			assert.Equal(t, v.frame, f)
		})
	}
}

// TestAccepted: an end accepts, ignores and refuses what the table in docs/protocol.md says.
func TestAccepted(t *testing.T) {
	private := func(header string, n int) string {
		return header + string([]byte{byte(n >> 8), byte(n)}) + strings.Repeat("p", n)
	}
	fpdu := "\x00\x12\x41\x43\x00\x00"
	rows := []struct {
		received string
		frames   []string // without the key
	}{
		{"256 to 512 bytes of private data", []string{private("\x40\x01", 256), private("\x40\x01", 512)}},
		{"more private data", []string{private("\x40\x01", 513), private("\x40\x01", 65535), "\x40\x01\x02\x01"}},
		{"M", []string{"\x80\x01\x00\x00", "\xC0\x01\x00\x04abcd"}},
		{"R", []string{"\x20\x01\x00\x00", "\x60\x01\x00\x01x"}},
		{"a reserved flag; S in revision 1", []string{"\x1F\x01\x00\x00", "\x01\x01\x00\x04abcd"}},
		{"revision 2 (RFC 6581), with S or without", []string{"\x10\x02\x00\x04\x00\x01\x00\x01", "\x00\x02\x00\x00", "\x40\x02\x00\x04abcd"}},
		{"S and fewer than 4 bytes of private data", []string{"\x10\x02\x00\x00", "\x10\x02\x00\x03abc", "\x10\x02\x00\x03"}},
		{"another revision", []string{"\x40\x00\x00\x00", "\x40\x03\x00\x00", "\x40\xFF\x00\x00"}},
		{"the first FPDU in the same TCP segment", []string{"\x40\x01\x00\x00" + fpdu, "\x40\x01\x00\x04abcd" + fpdu}},
	}
	page, err := os.ReadFile("../../../docs/protocol.md")
	require.NoError(t, err)
	_, table, ok := strings.Cut(string(page), "| received | by a server | by a client |\n|---|---|---|\n")
	require.True(t, ok, "the page has no table")
	table, _, _ = strings.Cut(table, "\n\n")
	lines := strings.Split(table, "\n")
	require.Len(t, lines, len(rows))
	for i, row := range rows {
		cells := strings.Split(strings.Trim(lines[i], "| "), " | ")
		require.Len(t, cells, 3)
		assert.Equal(t, cells[0], row.received)
		for _, f := range row.frames {
			var request Request
			check(t, cells[1], RequestKey+f, request.Receive)
			initiator, _, err := Initiate(Config{}, nil)
			require.NoError(t, err)
			check(t, cells[2], replyKey+f, initiator.Receive)
		}
	}
}

// check receives a frame, and compares the result with what a cell of the table says.
func check(t *testing.T, cell, frame string, receive func([]byte) (int, error)) {
	t.Helper()
	missing, err := receive([]byte(frame))
	var violation *rdma.ProtocolError
	var rejection *RejectError
	switch says, _, _ := strings.Cut(cell, ","); says {
	case "accepted", "ignored":
		assert.NoError(t, err, "%q", frame)
		assert.Zero(t, missing, "%q", frame)
	case "refused":
		assert.ErrorAs(t, err, &violation, "%q", frame)
	case "rejection":
		assert.ErrorAs(t, err, &rejection, "%q", frame)
	default:
		t.Errorf("the page says %q", cell)
	}
}

// TestFrameRejects: each refusal names its rule, and comes with the header.
func TestFrameRejects(t *testing.T) {
	for _, v := range []struct{ name, bytes, rule, what string }{
		{"revision 0", "\x00\x00\x00\x00", "RFC 5044 §7.1.1", "MPA revision 0"},
		{"revision 3", "\x00\x03\x00\x00", "RFC 5044 §7.1.1", "MPA revision 3"},
		{"markers", "\x80\x01\x00\x00", "RFC 5044 §4.3", "markers are required"},
		{"oversized", "\x00\x01\x02\x01", "RFC 5044 §7.1.1", "513 bytes of private data"},
		{"half the words", "\x10\x02\x00\x03", "RFC 6581 §9", "3 bytes of private data with S set"},
	} {
		t.Run(v.name, func(t *testing.T) {
			var f frame
			_, err := f.parse([]byte(RequestKey+v.bytes), RequestKey, nil)
			var violation *rdma.ProtocolError
			require.ErrorAs(t, err, &violation)
			assert.Equal(t, v.rule, violation.Rule)
			assert.Contains(t, violation.What, v.what)
		})
	}
}

// TestFrameOfAnotherProtocol: the first byte that differs decides.
func TestFrameOfAnotherProtocol(t *testing.T) {
	for _, v := range []struct{ name, bytes, got string }{
		{"HTTP", "HTTP/1.1 400 Bad Request\r\n", "HTTP/1.1 400 Bad"},
		{"one byte", "\x15", "\x15"},
		{"a prefix, then not", "MPA ID Raw", "MPA ID Raw"},
		{"the key of the other side", replyKey, replyKey},
	} {
		t.Run(v.name, func(t *testing.T) {
			var f frame
			_, err := f.parse([]byte(v.bytes), RequestKey, nil)
			var other *NotMPAError
			require.ErrorAs(t, err, &other)
			assert.Equal(t, v.got, string(other.Got))
		})
	}
}

func TestOwnPrivateDataIsBounded(t *testing.T) {
	f := frame{revision: 1, private: make([]byte, maxOwnPrivate+1)}
	_, err := f.bytes(RequestKey)
	require.ErrorContains(t, err, "private data of 256 bytes exceeds the maximum of 255")
	_, _, err = Initiate(Config{Revision: 2}, make([]byte, 252))
	require.ErrorContains(t, err, "private data of 256 bytes")
}

func FuzzFrame(f *testing.F) {
	for _, v := range frameVectors {
		f.Add([]byte(v.bytes))
	}
	f.Add([]byte("MPA ID Req Frame\xFF\x02\x00\x05\xC0\x01\xC0\x01x"))
	f.Fuzz(func(t *testing.T, b []byte) {
		defer watchdog.Start()()
		var got frame
		missing, err := got.parse(b, RequestKey, nil)
		if err != nil || missing > 0 || got.length > maxOwnPrivate {
			return
		}
		again, err := got.bytes(RequestKey)
		if err != nil {
			t.Fatal(err)
		}
		if want := string(b[:len(again)]); string(again) != want {
			t.Errorf("%q came back as %q", want, again)
		}
	})
}
