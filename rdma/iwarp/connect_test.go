package iwarp

import (
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

	"github.com/gosdp/gosdp/rdma/iwarp/mpa"
)

const (
	request = "MPA ID Req Frame\x40\x01\x00\x03abc"
	reply   = "MPA ID Rep Frame\x40\x01\x00\x03xyz"
)

// requestFrom reads a Request from r.
func requestFrom(r io.Reader) (*Request, error) { return ReadRequest(&streamed{Reader: r}) }

// streamed is a connection that can only be read, and records each Write.
type streamed struct {
	io.Reader
	net.Conn
	sent []string
}

func (s *streamed) Read(b []byte) (int, error) { return s.Reader.Read(b) }

func (s *streamed) Write(b []byte) (int, error) {
	s.sent = append(s.sent, string(b))
	return len(b), nil
}

// TestConnect: both ends negotiate over TCP, each with a single Write, and FPDUs fit into TCP's
// segments.
func TestConnect(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	client, err := net.Dial("tcp", ln.Addr().String())
	require.NoError(t, err)
	defer client.Close()
	server, err := ln.Accept()
	require.NoError(t, err)
	defer server.Close()
	served := make(chan *QueuePair, 1)
	go func() {
		defer close(served)
		r, err := ReadRequest(server)
		if !assert.NoError(t, err) {
			return
		}
		assert.Equal(t, "offers", string(r.Private))
		q, err := r.Accept(Config{NoCRC: true}, []byte("choice"))
		if assert.NoError(t, err) {
			served <- q
		}
	}()
	q, private, err := Connect(client, Config{}, []byte("offers"))
	require.NoError(t, err)
	defer q.Close()
	assert.Equal(t, "choice", string(private))
	responder := <-served
	require.NotNil(t, responder)
	defer responder.Close()
	assert.True(t, q.p.initiator)
	assert.False(t, responder.p.initiator)
	for _, q := range []*QueuePair{q, responder} {
		assert.Equal(t, mpa.Params{CRC: true, IRD: 16, ORD: 16}, q.p.Params)
		assert.Zero(t, (q.p.maxULPDU+mpa.LengthLen+mpa.CRCLen)%4)
		assert.GreaterOrEqual(t, mpa.FPDULen(q.p.maxULPDU), 536)
	}
}

// TestFramesAreOneWrite: siw drops a connection if a frame arrives in pieces.
func TestFramesAreOneWrite(t *testing.T) {
	s := &streamed{Reader: strings.NewReader(request)}
	r, err := ReadRequest(s)
	require.NoError(t, err)
	require.NoError(t, r.Reject([]byte("no")))
	_, err = Ask(s, Config{}, []byte("abc"))
	require.NoError(t, err)
	assert.Equal(t, []string{"MPA ID Rep Frame\x20\x01\x00\x02no", request}, s.sent)
}

// TestFrameIsReadAlone: however it arrives, the first FPDU remains on the connection.
func TestFrameIsReadAlone(t *testing.T) {
	for _, pieces := range []func(io.Reader) io.Reader{
		iotest.OneByteReader, iotest.HalfReader,
		func(r io.Reader) io.Reader { return r },
	} {
		rest := strings.NewReader(request + "FPDU")
		r, err := requestFrom(pieces(rest))
		require.NoError(t, err)
		assert.Equal(t, "abc", string(r.Private))
		left, _ := io.ReadAll(rest)
		assert.Equal(t, "FPDU", string(left))
	}
	r, err := requestFrom(iotest.DataErrReader(strings.NewReader(request)))
	require.NoError(t, err, "the end arrives with the last byte")
	assert.Equal(t, "abc", string(r.Private))
}

func TestFrameCutShort(t *testing.T) {
	for n := 1; n < len(request); n++ {
		_, err := requestFrom(strings.NewReader(request[:n]))
		require.ErrorIs(t, err, io.ErrUnexpectedEOF, "%d bytes", n)
	}
	_, err := requestFrom(strings.NewReader(""))
	require.Equal(t, io.EOF, err, "a peer that says nothing")

	reset := errors.New("reset")
	_, err = requestFrom(io.MultiReader(strings.NewReader(request[:7]), iotest.ErrReader(reset)))
	require.ErrorIs(t, err, reset)
	require.ErrorContains(t, err, "after 7 of 20 bytes")
	_, err = requestFrom(strings.NewReader(request[:22]))
	require.ErrorContains(t, err, "after 22 of 23 bytes")
}

// TestFrameDecidesAtTheFirstWrongByte: a peer that sends a greeting and waits is recognised at once.
func TestFrameDecidesAtTheFirstWrongByte(t *testing.T) {
	c, peer := net.Pipe()
	defer c.Close()
	defer peer.Close()
	go peer.Write([]byte("hi"))
	_, err := ReadRequest(c)
	var other *mpa.NotMPAError
	require.ErrorAs(t, err, &other)
	assert.Equal(t, "hi", string(other.Got))
}

func TestFrameReadEndsAtTheDeadline(t *testing.T) {
	c, peer := net.Pipe()
	defer c.Close()
	defer peer.Close()
	c.SetDeadline(time.Unix(1, 0))
	_, err := ReadRequest(c)
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
}

// TestReplyIsReadAgain: after a deadline that nothing preceded, the Reply may be awaited again, and
// only then there is a queue pair.
func TestReplyIsReadAgain(t *testing.T) {
	s := &streamed{Reader: iotest.ErrReader(os.ErrDeadlineExceeded)}
	asked, err := Ask(s, Config{}, nil)
	require.NoError(t, err)
	_, err = asked.Reply()
	require.Equal(t, os.ErrDeadlineExceeded, err)
	_, err = asked.QueuePair()
	require.ErrorContains(t, err, "no MPA Reply")
	s.Reader = strings.NewReader(reply)
	private, err := asked.Reply()
	require.NoError(t, err)
	assert.Equal(t, "xyz", string(private))
	q, err := asked.QueuePair()
	require.NoError(t, err)
	assert.NotNil(t, q)
}

func TestConnectSendsNothingItMayNot(t *testing.T) {
	var s streamed
	_, _, err := Connect(&s, Config{Revision: 3}, nil)
	require.ErrorContains(t, err, "MPA revision 3")
	_, _, err = Connect(&s, Config{}, make([]byte, 256))
	require.ErrorContains(t, err, "private data of 256 bytes")
	assert.Empty(t, s.sent)
}
