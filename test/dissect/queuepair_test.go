package dissect

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/rdma"
	"github.com/gosdp/gosdp/rdma/iwarp"
	"github.com/gosdp/gosdp/rdma/iwarp/mpa"
)

// The opcodes of RFC 5040 §4.3, and the queues of §4.1.
const (
	opWrite = iota
	opReadRequest
	opReadResponse
	opSend
	opSendInvalidate
	opSendSolicited
	opSendSolicitedInvalidate
	opTerminate

	queueSend      = 0
	queueRead      = 1
	queueTerminate = 2
)

// The lengths in bytes of the headers of RFC 5041 §4.
const (
	taggedLen   = 14
	untaggedLen = 18
)

// end is one end of a captured pair of queue pairs. For each work request it adds to
// expected the frames that it should send.
type end struct {
	*iwarp.QueuePair
	t        *testing.T
	client   bool
	cfg      iwarp.Config
	crc      CRC
	expected *[]Frame

	sendMSN, readMSN uint32
}

// connect connects a pair of queue pairs and captures them from the start. expected gets the
// frames that both should send, in order.
func connect(t *testing.T, cfg iwarp.Config) (capture *Capture, client, server *end, expected *[]Frame) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	capture = Start(t, ln.Addr().(*net.TCPAddr).Port)
	dialled, err := net.Dial("tcp", ln.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { dialled.Close() })
	accepted, err := ln.Accept()
	require.NoError(t, err)
	t.Cleanup(func() { accepted.Close() })

	crc := Good
	if cfg.NoCRC {
		crc = Unused
	}
	expected = new([]Frame)
	client = &end{t: t, client: true, cfg: cfg, crc: crc, expected: expected}
	server = &end{t: t, cfg: cfg, crc: crc, expected: expected}
	answered := make(chan error, 1)
	go func() {
		request, err := iwarp.ReadRequest(accepted)
		if err == nil {
			server.QueuePair, err = request.Accept(cfg, []byte("reply"))
		}
		answered <- err
	}()
	client.QueuePair, _, err = iwarp.Connect(dialled, cfg, []byte("request"))
	require.NoError(t, err)
	require.NoError(t, <-answered)
	abort := func() { client.Abort(); server.Abort() }
	watchdog := time.AfterFunc(2*time.Minute, abort)
	t.Cleanup(func() { watchdog.Stop(); abort() })

	request, reply := []byte("request"), []byte("reply")
	if cfg.Revision == 2 { // RFC 6581 §9: IRD and ORD, with the flags A, C and D
		request = append([]byte{0x80, 16, 0xC0, 16}, request...)
		reply = append([]byte{0x80, 16, 0x80, 16}, reply...)
	}
	client.expect(Frame{Kind: Request, WantCRC: !cfg.NoCRC, Revision: max(cfg.Revision, 1), Private: request})
	server.expect(Frame{Kind: Reply, WantCRC: !cfg.NoCRC, Revision: max(cfg.Revision, 1), Private: reply})
	if cfg.Revision == 2 {
		client.tagged(opWrite, 1, 0, nil) // the RTR message
	}
	for _, e := range []*end{client, server} {
		e.ProvideReceive(64, 1<<16)
	}
	return capture, client, server, expected
}

func (e *end) expect(f Frame) {
	f.Client = e.client
	*e.expected = append(*e.expected, f)
}

// segment expects an FPDU with one segment.
func (e *end) segment(s Segment, headers, payload int) {
	e.expect(Frame{Kind: FPDU, ULPDU: headers + payload, CRC: e.crc, Segment: s})
}

// tagged expects the segments of an RDMA Write or a Read Response.
func (e *end) tagged(opcode uint8, stag rdma.STag, to uint64, b []byte) {
	for first := true; first || len(b) > 0; first = false {
		n := min(len(b), e.cfg.MaxULPDU-taggedLen)
		e.segment(Segment{
			Tagged: true, Last: n == len(b), Opcode: opcode, STag: uint32(stag), TO: to, Payload: nonempty(b[:n]),
		}, taggedLen, n)
		b, to = b[n:], to+uint64(n)
	}
}

// send posts a message, expects ends frames, and lets the peer receive it.
func (e *end) send(peer *end, wr rdma.SendWR) {
	e.t.Helper()
	n, err := e.PostSend([]rdma.SendWR{wr})
	require.NoError(e.t, err)
	require.Equal(e.t, 1, n)
	e.expectSend(wr)

	c := peer.wait()
	require.Equal(e.t, rdma.OpReceive, c.Op)
	assert.Equal(e.t, append(bytes.Clone(wr.Header), wr.Payload...), c.Buffer.Bytes)
	assert.Equal(e.t, wr.Invalidate, c.Invalidated)
	c.Buffer.Release()
}

func (e *end) expectSend(wr rdma.SendWR) {
	opcode := uint8(opSend)
	if wr.Invalidate != 0 {
		opcode = opSendInvalidate
	}
	if wr.Solicited {
		opcode += opSendSolicited - opSend
	}
	e.sendMSN++
	message, mo := append(bytes.Clone(wr.Header), wr.Payload...), 0
	for first := true; first || mo < len(message); first = false {
		n := min(len(message)-mo, e.cfg.MaxULPDU-untaggedLen)
		e.segment(Segment{
			Last: mo+n == len(message), Opcode: opcode, STag: uint32(wr.Invalidate),
			QN: queueSend, MSN: e.sendMSN, MO: uint32(mo), Payload: nonempty(message[mo : mo+n]),
		}, untaggedLen, n)
		mo += n
	}
}

// write posts an RDMA Write and expects ends frames.
func (e *end) write(stag rdma.STag, to uint64, b []byte) {
	e.t.Helper()
	require.NoError(e.t, e.PostWrite(rdma.WriteWR{ID: 1, Local: b, STag: stag, VA: to}))
	e.tagged(opWrite, stag, to, b)
}

// read posts an RDMA Read into local and expects the Read Request. It returns the STag that
// the Response must carry.
func (e *end) read(stag rdma.STag, to uint64, local []byte) (sink rdma.STag) {
	e.t.Helper()
	require.NoError(e.t, e.PostRead(rdma.ReadWR{ID: 2, Local: local, STag: stag, VA: to}))
	e.readMSN++
	const requestLen = 28
	e.segment(Segment{
		Last: true, Opcode: opReadRequest, QN: queueRead, MSN: e.readMSN,
		Read: &ReadRequest{SinkSTag: e.readMSN, Size: uint32(len(local)), SrcSTag: uint32(stag), SrcTO: to},
	}, untaggedLen, requestLen)
	return rdma.STag(e.readMSN)
}

// wait returns the next completion.
func (e *end) wait() rdma.Completion {
	e.t.Helper()
	var wcs [1]rdma.Completion
	n, err := e.Wait(wcs[:])
	require.NoError(e.t, err)
	require.Equal(e.t, 1, n)
	return wcs[0]
}

func nonempty(b []byte) []byte {
	if len(b) == 0 {
		return nil
	}
	return bytes.Clone(b)
}

func pattern(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7 + i>>8)
	}
	return b
}

var variants = map[string]iwarp.Config{
	"CRC":         {MaxULPDU: mpa.SoftwareULPDU},
	"no CRC":      {MaxULPDU: mpa.SoftwareULPDU, NoCRC: true},
	"short FPDUs": {MaxULPDU: 1002},
	"revision 2":  {MaxULPDU: 1447, Revision: 2, PeerToPeer: true},
}

// TestEveryOpcode makes both ends send each kind of message: Sends of every padding and of
// several segments, Writes and Reads of no bytes, of one byte, and of several segments.
func TestEveryOpcode(t *testing.T) {
	for name, cfg := range variants {
		t.Run(name, func(t *testing.T) {
			notInShort(t, name != "short FPDUs")
			t.Parallel()
			capture, client, server, expected := connect(t, cfg)
			client.send(server, rdma.SendWR{Header: []byte("the client sends first")})
			for _, direction := range [][2]*end{{client, server}, {server, client}} {
				from, to := direction[0], direction[1]
				for n := range 5 {
					from.send(to, rdma.SendWR{Header: []byte("header"), Payload: pattern(n)})
				}
				from.send(to, rdma.SendWR{Header: []byte("h"), Payload: pattern(5000), Solicited: true})
				from.send(to, rdma.SendWR{Header: []byte("h"), Payload: pattern(5001)})

				memory := make([]byte, 100_000)
				region, err := to.Register(memory, rdma.RemoteRead|rdma.RemoteWrite)
				require.NoError(t, err)
				for _, n := range []int{0, 1, 70_001} {
					from.write(region.STag, region.VA+11, pattern(n))
					require.Equal(t, rdma.OpWrite, from.wait().Op)
				}
				from.send(to, rdma.SendWR{Header: []byte("after the Writes")})
				assert.Equal(t, pattern(70_001), memory[11:11+70_001])

				for _, n := range []int{0, 1, 70_001} {
					local := make([]byte, n)
					sink := from.read(region.STag, region.VA+11, local)
					// The other end responds only while a goroutine polls it.
					answering := make(chan error, 1)
					go func() {
						_, err := to.Wait(make([]rdma.Completion, 1))
						answering <- err
					}()
					require.Equal(t, rdma.OpRead, from.wait().Op)
					to.Wake()
					require.NoError(t, <-answering)
					to.tagged(opReadResponse, sink, 0, memory[11:11+n])
					assert.Equal(t, pattern(n), local)
				}

				other, err := to.Register(memory, rdma.RemoteRead)
				require.NoError(t, err)
				from.send(to, rdma.SendWR{Header: []byte("h"), Payload: pattern(9), Invalidate: region.STag})
				from.send(to, rdma.SendWR{Header: []byte("h"), Invalidate: other.STag, Solicited: true})
			}
			require.NoError(t, client.Close())
			require.NoError(t, server.Close())
			requireFrames(t, *expected, capture.Frames())
		})
	}
}

// requireFrames compares the frames of each end separately. The order between the two ends
// depends on timing.
func requireFrames(t *testing.T, want, got []Frame) {
	t.Helper()
	for _, client := range []bool{true, false} {
		want, got := only(want, client), only(got, client)
		for i := range min(len(want), len(got)) {
			require.Equal(t, want[i], got[i], "frame %d of client=%t", i, client)
		}
		require.Equal(t, len(want), len(got), "frames of client=%t", client)
	}
}

// only returns the frames of one end.
func only(frames []Frame, client bool) []Frame {
	var found []Frame
	for _, f := range frames {
		if f.Client == client {
			found = append(found, f)
		}
	}
	return found
}

// TestTerminates: the client breaks a rule, and the server reports it by a Terminate.
func TestTerminates(t *testing.T) {
	const foreign = 0xABCDEF01
	for _, v := range []struct {
		name                   string
		layer, errorType, code uint8
		headers                int // that tshark shows
		do                     func(client *end, readable, writable rdma.Region)
	}{
		{"Write to a foreign STag", 1, 1, 0, taggedLen, func(client *end, readable, writable rdma.Region) {
			client.write(foreign, 5, pattern(10))
		}},
		{"Write without the right", 1, 1, 0, taggedLen, func(client *end, readable, writable rdma.Region) {
			client.write(readable.STag, readable.VA, pattern(10))
		}},
		{"Write past the end", 1, 1, 1, taggedLen, func(client *end, readable, writable rdma.Region) {
			client.write(writable.STag, writable.VA+95, pattern(10))
		}},
		{"Read from a foreign STag", 0, 1, 0, taggedLen + 28, func(client *end, readable, writable rdma.Region) {
			client.read(foreign, 5, make([]byte, 10))
		}},
		{"Read without the right", 0, 1, 2, taggedLen + 28, func(client *end, readable, writable rdma.Region) {
			client.read(writable.STag, writable.VA, make([]byte, 10))
		}},
		{"Read past the end", 0, 1, 1, taggedLen + 28, func(client *end, readable, writable rdma.Region) {
			client.read(readable.STag, readable.VA+95, make([]byte, 10))
		}},
		{"Read that wraps around", 0, 1, 4, taggedLen + 28, func(client *end, readable, writable rdma.Region) {
			client.read(readable.STag, ^uint64(0), make([]byte, 10))
		}},
		{"Send that invalidates a foreign STag", 0, 2, 9, untaggedLen, func(client *end, readable, writable rdma.Region) {
			client.violate(rdma.SendWR{Header: []byte("h"), Invalidate: foreign})
		}},
		{"Send that is too long", 1, 2, 5, untaggedLen, func(client *end, readable, writable rdma.Region) {
			client.violate(rdma.SendWR{Header: []byte("h"), Payload: pattern(1000)})
		}},
	} {
		t.Run(v.name, func(t *testing.T) {
			notInShort(t, !strings.HasSuffix(v.name, "foreign STag"))
			t.Parallel()
			capture, client, server, expected := connect(t, iwarp.Config{MaxULPDU: 2000})
			readable, err := server.Register(make([]byte, 100), rdma.RemoteRead)
			require.NoError(t, err)
			writable, err := server.Register(make([]byte, 100), rdma.RemoteWrite)
			require.NoError(t, err)
			server.ProvideReceive(64, 1000)
			v.do(client, readable, writable)
			offending := (*expected)[len(*expected)-1]

			_, err = server.Wait(make([]rdma.Completion, 1))
			var violation *rdma.ProtocolError
			require.ErrorAs(t, err, &violation)
			for err = nil; err == nil; {
				_, err = client.Wait(make([]rdma.Completion, 1))
			}
			assert.Equal(t, &rdma.TerminateError{Layer: v.layer, Type: v.errorType, Code: v.code}, err)

			headers := offending.Segment.header()
			const control, length = 4, 2
			server.segment(Segment{
				Last: true, Opcode: opTerminate, QN: queueTerminate, MSN: 1,
				Terminate: &Terminate{
					Layer: v.layer, Type: v.errorType, Code: v.code,
					M: true, D: true, R: offending.Read != nil,
					Length: offending.ULPDU, Headers: headers[:v.headers],
				},
			}, untaggedLen, control+length+len(headers))
			require.NoError(t, client.Close())
			require.NoError(t, server.Close())
			requireFrames(t, *expected, capture.Frames())
		})
	}
}

// violate posts a message that the peer must reject.
func (e *end) violate(wr rdma.SendWR) {
	e.t.Helper()
	n, err := e.PostSend([]rdma.SendWR{wr})
	require.NoError(e.t, err)
	require.Equal(e.t, 1, n)
	e.expectSend(wr)
}

// header returns the segment's headers as in RFC 5041 §4 and RFC 5040 §4. A Read Request
// consists of headers only.
func (s *Segment) header() []byte {
	control := byte(0x01)
	if s.Tagged {
		control |= 0x80
	}
	if s.Last {
		control |= 0x40
	}
	b := []byte{control, 0x40 | s.Opcode}
	b = binary.BigEndian.AppendUint32(b, s.STag)
	if s.Tagged {
		return binary.BigEndian.AppendUint64(b, s.TO)
	}
	for _, word := range []uint32{s.QN, s.MSN, s.MO} {
		b = binary.BigEndian.AppendUint32(b, word)
	}
	if r := s.Read; r != nil {
		b = binary.BigEndian.AppendUint32(b, r.SinkSTag)
		b = binary.BigEndian.AppendUint64(b, r.SinkTO)
		b = binary.BigEndian.AppendUint32(b, r.Size)
		b = binary.BigEndian.AppendUint32(b, r.SrcSTag)
		b = binary.BigEndian.AppendUint64(b, r.SrcTO)
	}
	return b
}

// TestDamageIsNoticed damages one byte of a capture at a time, everywhere that the other
// tests check. With CRC, the CRC check alone would notice most of them.
func TestDamageIsNoticed(t *testing.T) {
	for _, cfg := range []iwarp.Config{{MaxULPDU: 2000}, {MaxULPDU: 2000, NoCRC: true}} {
		capture, client, server, expected := connect(t, cfg)
		client.send(server, rdma.SendWR{Header: []byte("the message"), Payload: pattern(10)})
		require.NoError(t, client.Close())
		require.NoError(t, server.Close())
		require.Equal(t, *expected, capture.Frames())

		message := bytes.Index(capture.captured, []byte("the message"))
		require.Positive(t, message)
		damages := map[string]int{
			"request":         bytes.Index(capture.captured, []byte("request")),
			"ULPDU length":    message - 19,
			"DDP control":     message - 18,
			"RDMAP control":   message - 17,
			"reserved":        message - 16,
			"queue number":    message - 9,
			"sequence number": message - 5,
			"offset":          message - 1,
			"payload":         message + 3,
			"pad":             message + 21,
			"CRC":             message + 24,
		}
		if !cfg.NoCRC {
			damages = map[string]int{"payload": message + 3, "CRC": message + 24}
		}
		for name, at := range damages {
			t.Run(fmt.Sprintf("%s, NoCRC=%t", name, cfg.NoCRC), func(t *testing.T) {
				notInShort(t, name != "payload" && name != "CRC" && name != "queue number")
				t.Parallel()
				damaged := bytes.Clone(capture.captured)
				damaged[at] ^= 0x02
				file := filepath.Join(t.TempDir(), "damaged.pcap")
				require.NoError(t, os.WriteFile(file, damaged, 0o600))
				frames, err := dissect(file, capture.port)
				assert.True(t, err != nil || !assert.ObjectsAreEqual(*expected, frames))
			})
		}
	}
}
