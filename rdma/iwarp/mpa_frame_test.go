package iwarp

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"testing/iotest"
	"time"

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
	{"bare Request", RequestKey, "MPA ID Req Frame\x00\x01\x00\x00", frame{revision: 1}},
	{"Request with CRC", RequestKey, "MPA ID Req Frame\x40\x01\x00\x03abc", frame{flagCRC, 1, []byte("abc")}},
	{"rejection", replyKey, "MPA ID Rep Frame\x20\x01\x00\x01x", frame{flagRejected, 1, []byte("x")}},
	// Sent by Linux's siw to rping.
	{"siw's Request", RequestKey, "MPA ID Req Frame\x10\x02\x00\x04\x00\x01\x00\x01", frame{flagEnhanced, 2, []byte{0, 1, 0, 1}}},
}

func TestFrameVectors(t *testing.T) {
	for _, v := range frameVectors {
		t.Run(v.name, func(t *testing.T) {
			var sent writes
			require.NoError(t, v.frame.write(&sent, v.key))
			assert.Equal(t, []string{v.bytes}, sent.each, "one write")

			r := strings.NewReader(v.bytes + "FPDU")
			f, err := readFrame(iotest.OneByteReader(r), v.key)
			require.NoError(t, err)
			assert.Equal(t, v.frame.flags, f.flags)
			assert.Equal(t, v.frame.revision, f.revision)
			assert.Equal(t, string(v.frame.private), string(f.private))
			rest, _ := io.ReadAll(r)
			assert.Equal(t, "FPDU", string(rest), "not a byte more is read")
		})
	}
}

// writes is a connection that records each Write.
type writes struct {
	net.Conn
	each []string
}

func (w *writes) Write(b []byte) (int, error) {
	w.each = append(w.each, string(b))
	return len(b), nil
}

func TestFrameTakesLongPrivateDataAndReservedBits(t *testing.T) {
	b := "MPA ID Req Frame\x4F\x01\x02\x00" + strings.Repeat("p", maxPrivate)
	f, err := readFrame(strings.NewReader(b), RequestKey)
	require.NoError(t, err)
	assert.Len(t, f.private, maxPrivate)
}

func TestFrameRejects(t *testing.T) {
	for _, v := range []struct{ name, bytes, rule, what string }{
		{"revision 0", "\x00\x00\x00\x00", ruleFrame, "MPA revision 0"},
		{"revision 3", "\x00\x03\x00\x00", ruleFrame, "MPA revision 3"},
		{"markers", "\x80\x01\x00\x00", "RFC 5044 §4.3", "markers are required"},
		{"oversized", "\x00\x01\x02\x01" + strings.Repeat("p", 513), ruleFrame, "513 bytes of private data"},
	} {
		t.Run(v.name, func(t *testing.T) {
			_, err := readFrame(strings.NewReader(RequestKey+v.bytes), RequestKey)
			var violation *rdma.ProtocolError
			require.ErrorAs(t, err, &violation)
			assert.Equal(t, v.rule, violation.Rule)
			assert.Contains(t, violation.What, v.what)
		})
	}
}

func TestFrameCutShort(t *testing.T) {
	whole := frameVectors[1].bytes
	for n := 1; n < len(whole); n++ {
		_, err := readFrame(strings.NewReader(whole[:n]), RequestKey)
		require.ErrorIs(t, err, io.ErrUnexpectedEOF, "%d bytes", n)
	}
	_, err := readFrame(strings.NewReader(""), RequestKey)
	require.Equal(t, io.EOF, err, "a peer that says nothing")

	reset := errors.New("reset")
	_, err = readFrame(io.MultiReader(strings.NewReader(whole[:7]), iotest.ErrReader(reset)), RequestKey)
	require.ErrorIs(t, err, reset)
	require.ErrorContains(t, err, "after 7 of 20 bytes")
}

func TestFrameOfAnotherProtocol(t *testing.T) {
	for _, v := range []struct{ name, bytes, got string }{
		{"HTTP", "HTTP/1.1 400 Bad Request\r\n", "HTTP/1.1 400 Bad"},
		{"one byte", "\x15", "\x15"},
		{"a prefix, then not", "MPA ID Raw", "MPA ID Raw"},
		{"the key of the other side", replyKey, replyKey},
	} {
		t.Run(v.name, func(t *testing.T) {
			_, err := readFrame(strings.NewReader(v.bytes), RequestKey)
			var other *NotMPAError
			require.ErrorAs(t, err, &other)
			assert.Equal(t, v.got, string(other.Got))
		})
	}
}

// TestFrameDecidesAtTheFirstWrongByte: a peer that sends a greeting and waits is recognised at once.
func TestFrameDecidesAtTheFirstWrongByte(t *testing.T) {
	c, peer := net.Pipe()
	defer c.Close()
	defer peer.Close()
	go peer.Write([]byte("hi"))
	_, err := readFrame(c, replyKey)
	var other *NotMPAError
	require.ErrorAs(t, err, &other)
	assert.Equal(t, "hi", string(other.Got))
}

func TestFrameReadEndsAtTheDeadline(t *testing.T) {
	c, peer := net.Pipe()
	defer c.Close()
	defer peer.Close()
	c.SetDeadline(time.Unix(1, 0))
	_, err := readFrame(c, replyKey)
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
}

func TestOwnPrivateDataIsBounded(t *testing.T) {
	var sent writes
	f := frame{revision: 1, private: make([]byte, maxOwnPrivate+1)}
	require.ErrorContains(t, f.write(&sent, RequestKey), "private data of 256 bytes exceeds the maximum of 255")
	assert.Empty(t, sent.each)
}

func FuzzFrame(f *testing.F) {
	for _, v := range frameVectors {
		f.Add([]byte(v.bytes))
	}
	f.Add([]byte("MPA ID Req Frame\xFF\x02\x00\x05\xC0\x01\xC0\x01x"))
	f.Fuzz(func(t *testing.T, b []byte) {
		defer watchdog.Start()()
		got, err := readFrame(bytes.NewReader(b), RequestKey)
		if err != nil {
			return
		}
		w, private, enhanced, err := got.takeWords()
		if err != nil {
			return
		}
		again := frame{flags: got.flags, revision: got.revision, private: private}
		if enhanced {
			again.private = append(w.appendTo(nil), private...)
		}
		if len(again.private) > maxOwnPrivate {
			return
		}
		var sent writes
		if err := again.write(&sent, RequestKey); err != nil {
			t.Fatal(err)
		}
		if want := string(b[:len(sent.each[0])]); sent.each[0] != want {
			t.Errorf("%q came back as %q", want, sent.each[0])
		}
	})
}
