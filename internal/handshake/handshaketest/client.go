// Package handshaketest has what the tests of handshakes need: a client that is played by
// hand, and a device whose channels the tests make.
package handshaketest

import (
	"encoding/binary"
	"io"
	"net"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/rdma"
	"github.com/gosdp/gosdp/rdma/iwarp/mpa"
	"github.com/gosdp/gosdp/wire"
)

// Offers are those of a client that has iwarp, on another host.
func Offers() wire.Offers {
	return wire.Offers{
		Devices: []wire.Device{wire.DeviceIWARP},
		Client:  netip.MustParseAddrPort("192.0.2.1:1"),
		Server:  netip.MustParseAddrPort("192.0.2.2:2"),
	}
}

// Hello is a client's.
func Hello() []byte {
	h := wire.Hello{Bufs: 32, MaxAdverts: 2, LocalRcvSz: 8192, IRD: 4, ORD: 12}
	return h.AppendHello(nil)
}

// Private is the private data of a Request.
func Private(t *testing.T, o wire.Offers, hello []byte) []byte {
	t.Helper()
	b, err := o.Append(nil)
	require.NoError(t, err)
	return append(b, hello...)
}

// Request is the whole MPA Request of a client that does not ask for CRC.
func Request(t *testing.T, o wire.Offers, hello []byte) string {
	t.Helper()
	return Frame(Private(t, o, hello))
}

// Frame is a Request with this private data.
func Frame(private []byte) string {
	b := append([]byte(mpa.RequestKey), 0, 1)
	b = binary.BigEndian.AppendUint16(b, uint16(len(private)))
	return string(append(b, private...))
}

// ReadReply reads an MPA Reply: its flags and its private data.
func ReadReply(t *testing.T, c net.Conn) (flags byte, private []byte) {
	t.Helper()
	header := make([]byte, mpa.KeyLen+4)
	_, err := io.ReadFull(c, header)
	require.NoError(t, err)
	require.Equal(t, "MPA ID Rep Frame", string(header[:mpa.KeyLen]))
	private = make([]byte, binary.BigEndian.Uint16(header[mpa.KeyLen+2:]))
	_, err = io.ReadFull(c, private)
	require.NoError(t, err)
	return header[mpa.KeyLen], private
}

// The flags of a Reply.
const (
	ReplyCRC      = 0x40
	ReplyRejected = 0x20
)

// send posts a message.
func Send(t *testing.T, qp rdma.QueuePair, m wire.Message) {
	t.Helper()
	header := m.AppendHeader(nil)
	n, err := qp.PostSend([]rdma.SendWR{{Header: header, Payload: m.Payload}})
	require.NoError(t, err)
	require.Equal(t, 1, n)
	qp.Flush()
}

// Stay is the decision to stay on iwarp.
func Stay() wire.Message {
	return wire.Message{Header: wire.Header{MID: wire.MIDData, Bufs: 32, MSeq: 1}}
}
