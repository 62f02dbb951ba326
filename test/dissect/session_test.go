package dissect

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/sdp"
	"github.com/gosdp/gosdp/wire"
)

// sent is an SDP message in a Send, and its sender.
type sent struct {
	client      bool
	solicited   bool
	invalidates uint32 // the receiver's STag; 0 means none
	wire.Message
}

// messages returns the messages that the Sends carry, in the order in which they were
// completed.
func messages(t *testing.T, frames []Frame) []sent {
	t.Helper()
	var all []sent
	unfinished := make(map[bool][]byte)
	for _, f := range frames {
		if f.Kind != FPDU || f.Opcode < opSend || f.Opcode > opSendSolicitedInvalidate {
			continue
		}
		b := append(unfinished[f.Client], f.Payload...)
		if unfinished[f.Client] = b; !f.Last {
			continue
		}
		delete(unfinished, f.Client)
		m := sent{client: f.Client, solicited: f.Opcode >= opSendSolicited}
		if f.Opcode == opSendInvalidate || f.Opcode == opSendSolicitedInvalidate {
			m.invalidates = f.STag
		}
		require.NoError(t, m.Parse(b))
		// Check the raw bytes, because both ends share package wire's parser.
		assert.Equal(t, f.MSN, binary.BigEndian.Uint32(b[8:]), "MSeq: every message is a Send, and the first is 1")
		assert.Equal(t, len(b), int(binary.BigEndian.Uint32(b[4:])), "Len")
		all = append(all, m)
	}
	require.Empty(t, unfinished)
	return all
}

// requireCredit checks §10 for observers: each end sends only messages for which the peer
// had a buffer, and acknowledges only messages that were sent.
func requireCredit(t *testing.T, all []sent, hello, helloAck wire.Hello) {
	t.Helper()
	limit := map[bool]uint32{true: uint32(helloAck.Bufs), false: uint32(hello.Bufs)}
	last := make(map[bool]uint32)
	for _, m := range all {
		require.Equal(t, last[m.client]+1, m.MSeq)
		require.LessOrEqual(t, m.MSeq, limit[m.client], "%v of client=%t was sent without credit", m.MID, m.client)
		require.LessOrEqual(t, m.MSeqAck, last[!m.client], "%v of client=%t acknowledges a message that was not sent", m.MID, m.client)
		last[m.client] = m.MSeq
		limit[!m.client] = max(limit[!m.client], m.MSeqAck+uint32(m.Bufs))
	}
}

// TestSession captures a client that sends a request and a server that answers it.
func TestSession(t *testing.T) {
	for name, cfg := range map[string]*sdp.Config{
		"no CRC on one host": {Devices: []string{"iwarp"}},
		"CRC":                {Devices: []string{"iwarp"}, CRC: true},
	} {
		t.Run(name, func(t *testing.T) {
			notInShort(t, !cfg.CRC)
			t.Parallel()
			lc := sdp.ListenConfig{Config: cfg}
			ln, err := lc.Listen(context.Background(), "sdp", "127.0.0.1:0")
			require.NoError(t, err)
			defer ln.Close()
			capture := Start(t, ln.Addr().(*net.TCPAddr).Port)
			request, reply := pattern(100_000), pattern(123_456)
			talk(t, ln, &sdp.Dialer{Config: cfg}, request, reply)
			frames := capture.Frames()

			crc := Unused
			if cfg.CRC {
				crc = Good
			}
			require.Greater(t, len(frames), 2)
			for i, kind := range []Kind{Request, Reply} {
				f := frames[i]
				f.Private = nil
				assert.Equal(t, Frame{Client: kind == Request, Kind: kind, WantCRC: cfg.CRC, Revision: 1}, f)
			}
			offers, rest, err := wire.ParseOffers(frames[0].Private)
			require.NoError(t, err)
			assert.Contains(t, offers.Devices, wire.DeviceIWARP)
			hello, err := wire.ParseHello(rest)
			require.NoError(t, err)
			choice, rest, err := wire.ParseChoice(frames[1].Private)
			require.NoError(t, err)
			assert.Equal(t, wire.DeviceIWARP, choice.Device)
			helloAck, err := wire.ParseHelloAck(rest)
			require.NoError(t, err)
			for _, f := range frames[2:] {
				assert.Equal(t, FPDU, f.Kind)
				assert.Equal(t, crc, f.CRC)
			}

			all := messages(t, frames)
			requireCredit(t, all, hello, helloAck)
			assert.Equal(t, sent{client: true, Message: wire.Message{Header: wire.Header{
				MID: wire.MIDData, Bufs: hello.Bufs, Len: wire.HeaderLen, MSeq: 1,
			}}}, all[0], "the client's confirmation comes first")
			for _, client := range []bool{true, false} {
				want, got, ended := reply, []byte{}, false
				if client {
					want = request
				}
				for _, m := range all {
					if m.client != client {
						continue
					}
					require.False(t, ended && (len(m.Payload) > 0 || m.MID == wire.MIDDisConn), "%v after DisConn", m.MID)
					got = append(got, m.Payload...)
					ended = ended || m.MID == wire.MIDDisConn
					assert.False(t, m.solicited, "%v", m.MID)
				}
				assert.True(t, ended, "no DisConn of client=%t", client)
				assert.Equal(t, want, got)
			}
		})
	}
}

// talk makes a client send a request in pieces and close its sending direction, and the
// server answer and close.
func talk(t *testing.T, ln net.Listener, d *sdp.Dialer, request, reply []byte) {
	t.Helper()
	until := time.Now().Add(2 * time.Minute)
	var server sync.WaitGroup
	defer server.Wait()
	defer ln.Close()
	server.Go(func() {
		c, err := ln.Accept()
		if !assert.NoError(t, err) {
			return
		}
		c.SetDeadline(until)
		got, err := io.ReadAll(c)
		assert.NoError(t, err)
		assert.Equal(t, request, got)
		assert.NoError(t, writePieces(c, reply))
		assert.NoError(t, c.Close())
	})
	c, err := d.DialContext(context.Background(), "sdp", ln.Addr().String())
	require.NoError(t, err)
	defer c.Close()
	c.SetDeadline(until)
	require.NoError(t, writePieces(c, request))
	require.NoError(t, c.(*sdp.Conn).CloseWrite())
	got, err := io.ReadAll(c)
	require.NoError(t, err)
	assert.Equal(t, reply, got)
	require.NoError(t, c.Close())
	server.Wait()
}

// writePieces writes b in pieces of various lengths.
func writePieces(w io.Writer, b []byte) error {
	for n := 1; len(b) > 0; n = 2*n%20_011 + 1 {
		n = min(n, len(b))
		if _, err := w.Write(b[:n]); err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}
