package dissect

import (
	"bytes"
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/sdp"
	"github.com/gosdp/gosdp/wire"
)

// advert is an advertisement seen in the capture.
type advert struct {
	wire.Advert
	source bool   // a SrcAvail of the client
	done   uint32 // bytes in the SrcAvail itself or confirmed by completions
	moving uint32 // bytes requested or written since the last completion
	ended  bool
}

// TestZeroCopySession captures a client that writes to a server that always waits in large
// Reads. The server fetches the first Writes. Once the client knows about the Reads, it
// writes into the memory that they advertise.
func TestZeroCopySession(t *testing.T) {
	notInShort(t, true)
	const size = 150_000 // more than a private buffer
	t.Setenv("SDP_DEVICES", "iwarp")
	t.Setenv("SDP_ZCOPY_THRESHOLD", "1")
	ln, err := sdp.Listen("sdp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	capture := Start(t, ln.Addr().(*net.TCPAddr).Port)
	accepted := make(chan net.Conn, 1)
	go func() { // SDP is agreed on while the program waits in Accept
		defer close(accepted)
		if c, err := ln.Accept(); err == nil {
			accepted <- c
		}
	}()
	nc, err := sdp.Dial("sdp", ln.Addr().String())
	require.NoError(t, err)
	client := nc.(*sdp.Conn)
	defer client.Close()
	server, ok := (<-accepted).(*sdp.Conn)
	require.True(t, ok)
	defer server.Close()
	until := time.Now().Add(2 * time.Minute)
	require.NoError(t, client.SetDeadline(until))
	require.NoError(t, server.SetDeadline(until))

	written, b := []byte{}, pattern(size)
	for filled := 0; filled < 3; { // Reads that were advertised and filled
		before := server.Stats()
		done := make(chan error, 1)
		go func() {
			_, err := io.ReadFull(server, make([]byte, size))
			done <- err
		}()
		b[0]++
		_, err := client.Write(b)
		require.NoError(t, err)
		require.NoError(t, <-done)
		written = append(written, b...)
		if after := server.Stats(); after.Advertised > before.Advertised && after.ZCopyReceived == before.ZCopyReceived+size {
			filled++
		}
	}
	require.NoError(t, client.CloseWrite())
	require.NoError(t, server.CloseWrite())
	_, err = io.ReadAll(server)
	require.NoError(t, err)
	_, err = io.ReadAll(client)
	require.NoError(t, err)
	require.NoError(t, client.Close())
	require.NoError(t, server.Close())

	frames := capture.Frames()
	checkAdverts(t, frames, written)
}

// checkAdverts follows the client's stream through the frames. Only advertised memory may be
// read, written and completed.
func checkAdverts(t *testing.T, frames []Frame, written []byte) {
	t.Helper()
	all := messages(t, frames)
	var stream []byte
	var reads []*ReadRequest // not answered yet
	adverts := make(map[uint32]*advert)
	seen := make(map[wire.MID]int)
	var requests, responses, writes, next int
	lastOpen := func(mid wire.MID) *advert {
		for _, m := range all[:next] {
			if a := adverts[m.Advert.STag]; m.MID == mid && a != nil && !a.ended {
				return a
			}
		}
		require.Fail(t, "no open advertisement", "%v", mid)
		return nil
	}
	for _, f := range frames {
		switch {
		case f.Kind != FPDU:
		case f.Opcode == opReadRequest:
			requests++
			require.False(t, f.Client, "only the server reads")
			a := adverts[f.Read.SrcSTag]
			require.NotNil(t, a, "an RDMA Read of memory that was not advertised")
			require.False(t, a.ended)
			assert.Equal(t, a.VA+uint64(a.done+a.moving), f.Read.SrcTO, "in order, and without the bytes in the SrcAvail")
			a.moving += f.Read.Size
			assert.LessOrEqual(t, a.done+a.moving, a.Len)
			reads = append(reads, f.Read)
		case f.Opcode == opReadResponse:
			responses++
			require.NotEmpty(t, reads)
			assert.True(t, f.Client)
			assert.Equal(t, reads[0].SinkSTag, f.STag)
			stream = append(stream, f.Payload...)
			if f.Last {
				reads = reads[1:]
			}
		case f.Opcode == opWrite:
			writes++
			require.True(t, f.Client, "only the client writes")
			a := adverts[f.STag]
			require.NotNil(t, a, "an RDMA Write to memory that was not advertised")
			require.False(t, a.ended)
			assert.Equal(t, a.VA+uint64(a.moving), f.TO)
			a.moving += uint32(len(f.Payload))
			stream = append(stream, f.Payload...)
		case f.Last && f.Opcode >= opSend && f.Opcode <= opSendSolicitedInvalidate:
			m := all[next]
			next++
			seen[m.MID]++
			require.Equal(t, f.Client, m.client)
			if m.client {
				stream = append(stream, m.Payload...)
			}
			wakes := false
			switch m.MID {
			case wire.MIDSrcAvail, wire.MIDSinkAvail:
				require.Equal(t, m.MID == wire.MIDSrcAvail, m.client)
				adverts[m.Advert.STag] = &advert{Advert: m.Advert, source: m.client, done: uint32(len(m.Payload))}
			case wire.MIDRdmaRdCompl, wire.MIDRdmaWrCompl:
				wakes = true
				mid := wire.MIDSrcAvail
				if m.client {
					mid = wire.MIDSinkAvail
				}
				a := lastOpen(mid)
				assert.LessOrEqual(t, m.Size, a.moving, "%v reports more than was transferred", m.MID)
				a.done, a.moving = a.done+m.Size, a.moving-m.Size
				a.ended = a.done == a.Len
				if m.client { // the SinkAvail has crossed SrcAvails, which it ends
					assert.Zero(t, a.moving, "it must report all that was written")
					a.ended = true
					endSources(adverts)
				}
				if a.ended {
					assert.Equal(t, a.STag, m.invalidates, "the last %v invalidates the STag", m.MID)
				} else {
					assert.Zero(t, m.invalidates)
				}
			case wire.MIDSendSm:
				wakes = true
				endSources(adverts) // the client has one Write at a time
			case wire.MIDSrcAvailCancel, wire.MIDSinkAvailCancel, wire.MIDSinkCancelAck:
				wakes = true
			case wire.MIDModeChange:
				// After a cancelled advertisement it may be a change to Buffered mode.
				if seen[m.MID] == 1 && seen[wire.MIDSrcAvailCancel] == 0 {
					assert.True(t, m.client)
					assert.False(t, m.ModeOfSend)
					assert.Equal(t, wire.ModePipelined, m.Mode)
					assert.Zero(t, seen[wire.MIDSinkAvail], "a SinkAvail was sent in Combined mode")
				}
			}
			assert.Equal(t, wakes, m.solicited, "%v", m.MID)
		}
	}
	assert.True(t, bytes.Equal(written, stream), "%d bytes on the wire differ from the %d written", len(stream), len(written))
	assert.Empty(t, reads)
	for _, mid := range []wire.MID{
		wire.MIDSrcAvail, wire.MIDRdmaRdCompl, wire.MIDModeChange, wire.MIDSinkAvail, wire.MIDRdmaWrCompl,
	} {
		assert.NotZero(t, seen[mid], "%v", mid)
	}
	assert.NotZero(t, requests)
	assert.NotZero(t, responses)
	assert.GreaterOrEqual(t, writes, 3)
	t.Logf("%v; %d RDMA Read Requests, %d segments of Responses, %d of RDMA Writes", seen, requests, responses, writes)
}

// endSources ends every SrcAvail.
func endSources(adverts map[uint32]*advert) {
	for _, a := range adverts {
		a.ended = a.ended || a.source
	}
}
