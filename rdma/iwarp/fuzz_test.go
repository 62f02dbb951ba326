package iwarp

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/rdma"
	"github.com/gosdp/gosdp/rdma/iwarp/mpa"
	"github.com/gosdp/gosdp/test/watchdog"
)

// These fuzzers feed a queue pair what a stranger can send, from the first byte of the connection:
// FuzzResponder to the end that accepts, FuzzInitiator to the one that connects. FuzzSegments
// leaves MPA out and makes headers that are nearly right. The seeds are what the ends of a session
// send that the test runs.

// fuzzConfigs are the parameters of the sessions.
var fuzzConfigs = []Config{
	{NoCRC: true, IRD: victimIRD, ORD: 2, MaxULPDU: mpa.SoftwareULPDU},
	{IRD: victimIRD, ORD: 2, MaxULPDU: mpa.SoftwareULPDU},
	{IRD: victimIRD, ORD: 2, MaxULPDU: 1444, Revision: 2, PeerToPeer: true},
}

// How many bytes the sessions' RDMA Writes and Reads move. Few, because a fuzzer makes faster
// progress with short inputs; FuzzStream has long ones.
const (
	fuzzWrite = 300
	fuzzRead1 = 500
	fuzzRead2 = 60
)

// teed is a connection that records what is written.
type teed struct {
	streamOnly
	sent bytes.Buffer
}

func (c *teed) Write(b []byte) (int, error) {
	c.sent.Write(b)
	return c.streamOnly.Write(b)
}

// recorded runs a session with every kind of message, and returns what each end sent.
func recorded(t testing.TB, cfg Config) (fromInitiator, fromResponder []byte) {
	t.Helper()
	client, server := tcpPair(t)
	x, y := &teed{streamOnly: streamOnly{client}}, &teed{streamOnly: streamOnly{server}}
	a, b := connect(t, x, y, cfg)
	ends := []*victim{newVictim(t, a), newVictim(t, b)}
	for _, v := range ends {
		v.name()
	}
	for i, v := range ends {
		send := func(wr rdma.SendWR) {
			n, err := v.q.PostSend([]rdma.SendWR{wr})
			require.NoError(t, err)
			require.Equal(t, 1, n)
			v.q.Flush()
		}
		send(rdma.SendWR{Header: []byte("header"), Payload: pattern(7, 200)})
		ends[1-i].delivered(t, 1, 0) // the responder may send now
		require.NoError(t, v.q.PostWrite(rdma.WriteWR{Local: v.arena[writeAt:][:fuzzWrite], STag: scriptWrites, VA: 7}))
		require.NoError(t, v.q.PostWrite(rdma.WriteWR{STag: scriptWrites}))
		require.NoError(t, v.q.PostRead(rdma.ReadWR{ID: 1, Local: v.arena[local1At:][:fuzzRead1], STag: scriptBoth}))
		require.NoError(t, v.q.PostRead(rdma.ReadWR{ID: 2, Local: v.arena[local2At:][:fuzzRead2], STag: scriptReads, VA: 3}))
		send(rdma.SendWR{Header: []byte("solicited"), Solicited: true})
		ends[1-i].delivered(t, 1, 0)
		v.delivered(t, 0, 2)
		send(rdma.SendWR{Header: []byte("revokes"), Invalidate: scriptReads})
		ends[1-i].delivered(t, 1, 0)
	}
	require.NoError(t, a.Drain(time.Minute))
	require.NoError(t, b.Drain(time.Minute))
	a.Close()
	b.Close()
	return x.sent.Bytes(), y.sent.Bytes()
}

// name gives the victim's regions the same STags in every run.
func (v *victim) name() {
	for i, stag := range []*uint32{&v.both, &v.reads, &v.writes} {
		v.q.regions.Rename(rdma.STag(*stag), rdma.STag(scriptBoth+uint32(i)))
		*stag = scriptBoth + uint32(i)
	}
}

// delivered waits for a number of messages and Reads.
func (v *victim) delivered(t testing.TB, messages, reads int) {
	t.Helper()
	var wcs [1]rdma.Completion
	for messages > 0 || reads > 0 {
		n, err := v.q.Wait(wcs[:])
		require.NoError(t, err)
		for _, wc := range wcs[:n] {
			switch wc.Op {
			case rdma.OpReceive:
				wc.Buffer.Release()
				messages--
			case rdma.OpRead:
				reads--
			}
		}
	}
}

// scriptConn is a connection whose incoming bytes are fixed and arrive in pieces of the lengths
// that the steps say.
type scriptConn struct {
	in   []byte
	step func() int
	out  bytes.Buffer
}

func (c *scriptConn) Read(b []byte) (int, error) {
	if len(c.in) == 0 {
		return 0, io.EOF
	}
	n := copy(b, c.in[:min(c.step(), len(c.in))])
	c.in = c.in[n:]
	return n, nil
}

func (c *scriptConn) Write(b []byte) (int, error)    { return c.out.Write(b) }
func (*scriptConn) Close() error                     { return nil }
func (*scriptConn) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (*scriptConn) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (*scriptConn) SetDeadline(time.Time) error      { return nil }
func (*scriptConn) SetReadDeadline(time.Time) error  { return nil }
func (*scriptConn) SetWriteDeadline(time.Time) error { return nil }

// pieces returns the lengths that how says, from 1 byte on, in a cycle.
func pieces(how []byte) func() int {
	i := 0
	return func() int {
		i++
		n := int(how[i%len(how)])
		return 1 + n*n
	}
}

// The bits of the first byte of how.
const (
	howCRC    = 0x80 // this end asks for CRC
	howRepair = 0x40 // what follows the frame are lengths and ULPDUs
	howTwo    = 0x20 // this end speaks revision 2
)

func FuzzResponder(f *testing.F) {
	for _, cfg := range fuzzConfigs {
		in, _ := recorded(f, cfg)
		seed(f, in)
	}
	f.Fuzz(func(t *testing.T, how, in []byte) {
		defer watchdog.Start()()
		if len(how) == 0 {
			return
		}
		in, asked := repairedAfterFrame(how, in)
		c := &scriptConn{in: in, step: pieces(how)}
		request, err := ReadRequest(c)
		if err != nil {
			checkSetUpError(t, err)
			return
		}
		q, err := request.Accept(Config{NoCRC: !asked, IRD: victimIRD, ORD: 2, MaxULPDU: mpa.SoftwareULPDU}, []byte("choice"))
		require.NoError(t, err)
		checkSurvival(t, q, c, len(in))
	})
}

func FuzzInitiator(f *testing.F) {
	for _, cfg := range fuzzConfigs {
		_, in := recorded(f, cfg)
		seed(f, in)
	}
	f.Add([]byte{0}, []byte("MPA ID Rep Frame\x20\x01\x00\x06SDP\x01\x06\x00"))
	f.Fuzz(func(t *testing.T, how, in []byte) {
		defer watchdog.Start()()
		if len(how) == 0 {
			return
		}
		in, asks := repairedAfterFrame(how, in)
		c := &scriptConn{in: in, step: pieces(how)}
		cfg := Config{NoCRC: !asks, IRD: victimIRD, ORD: 2, MaxULPDU: mpa.SoftwareULPDU}
		if how[0]&howTwo != 0 {
			cfg.Revision, cfg.PeerToPeer = 2, true
		}
		q, _, err := Connect(c, cfg, []byte("offers"))
		if err != nil {
			checkSetUpError(t, err)
			return
		}
		checkSurvival(t, q, c, len(in))
	})
}

// seed adds a recorded stream: as it is, in pieces, cut short, and for repair.
func seed(f *testing.F, in []byte) {
	for _, crc := range []byte{0, howCRC} {
		for _, two := range []byte{0, howTwo} {
			f.Add([]byte{crc | two}, in)
			f.Add([]byte{crc | two, 200, 1}, in[:len(in)/2])
		}
	}
	frame, rest := splitFrame(in)
	b := slices.Clone(frame)
	for len(rest) > 0 {
		n := int(binary.BigEndian.Uint16(rest))
		b = append(b, rest[:2+n]...)
		rest = rest[(2+n+3)&^3+4:]
	}
	f.Add([]byte{howRepair}, b)
	f.Add([]byte{howRepair | howCRC | howTwo, 255, 9}, b)
}

// splitFrame divides what follows an MPA frame from it.
func splitFrame(in []byte) (frame, rest []byte) {
	if len(in) < 20 {
		return in, nil
	}
	n := min(20+int(binary.BigEndian.Uint16(in[18:])), len(in))
	return in[:n:n], in[n:]
}

// repairedAfterFrame makes whole FPDUs of what follows the frame, if how says so, and reports
// whether this end asks for CRC. A fuzzer seldom finds a correct CRC.
func repairedAfterFrame(how, in []byte) (b []byte, crc bool) {
	crc = how[0]&howCRC != 0
	if how[0]&howRepair == 0 {
		return in, crc
	}
	frame, rest := splitFrame(in)
	used := crc || len(frame) > 16 && frame[16]&0x40 != 0
	return append(frame, repaired(rest, used)...), crc
}

// checkSetUpError checks that a negotiation has failed with one of the expected kinds of error.
func checkSetUpError(t *testing.T, err error) {
	t.Helper()
	var other *mpa.NotMPAError
	var rejected *mpa.RejectError
	var violation *rdma.ProtocolError
	switch {
	case errors.As(err, &other), errors.As(err, &rejected), errors.As(err, &violation):
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
	default:
		t.Fatalf("the negotiation failed with %v", err)
	}
}

// checkSurvival lets the queue pair process everything, and checks how it ends, what it has
// written, and that memory which the peer may not write is unchanged.
func checkSurvival(t *testing.T, q *QueuePair, c *scriptConn, came int) {
	t.Helper()
	v := newVictim(t, q)
	v.name()
	for i, r := range [][2]int{{local1At, fuzzRead1}, {local2At, fuzzRead2}} {
		err := q.PostRead(rdma.ReadWR{ID: uint64(i + 1), Local: v.arena[r[0]:][:r[1]], STag: 77})
		if err != nil && err != rdma.ErrNoRoom { // the peer may grant fewer
			t.Fatal(err)
		}
	}
	o := v.outcome()
	var size int
	for _, m := range o.messages {
		size += len(m)
	}
	if size > came {
		t.Fatalf("%d bytes delivered of %d", size, came)
	}
	switch o.err.(type) {
	case *rdma.ProtocolError, *rdma.TerminateError:
	default:
		if o.err != io.EOF && o.err != io.ErrUnexpectedEOF {
			t.Fatalf("ended with %v", o.err)
		}
	}
	q.Close() // waits for the transport's goroutine
	checkCanaries(t, v)
	_, out := splitFrame(c.out.Bytes())
	for len(out) > 0 {
		_, out = takeFPDU(t, q.p.CRC, out)
	}
}

// segmentOp is a segment as FuzzSegments reads it: 12 bytes.
//
//	0      opcode in the low four bits, 0x10 last, 0x20 of the wrong kind
//	1      which STag
//	2      how far its number is off, signed
//	3      how far its message offset is off, signed
//	4..8   offset in the region
//	8..10  bytes of payload, or that a Read Request asks for
//	10     how far the queue is off
//	11     how far the versions are off
const segmentOp = 12

// FuzzSegments takes any bytes as a list of segments. They are numbered correctly unless they say
// otherwise, so most of them reach the last check.
func FuzzSegments(f *testing.F) {
	op := func(opcode byte, stag byte, at uint32, n uint16) []byte {
		b := []byte{opcode, stag, 0, 0}
		b = binary.BigEndian.AppendUint32(b, at)
		b = binary.BigEndian.AppendUint16(b, n)
		return append(b, 0, 0)
	}
	good := [][]byte{
		op(0x13, 0, 0, 100), op(0x10, 2, 5, 30000), op(0x10, 0, writeLen-1, 1), op(0x03, 0, 0, 10), op(0x13, 0, 0, 20),
		op(0x02, 8, 0, 20000), op(0x12, 8, 20000, local1Len-20000), op(0x11, 1, 0, readLen), op(0x11, 0, 7, 0),
		op(0x15, 0, 0, 0), op(0x14, 1, 0, 3), op(0x16, 0, 0, 1), op(0x17, 0, 0, 4),
	}
	f.Add([]byte{0}, slices.Concat(good...))
	f.Add([]byte{howCRC, 90, 3}, slices.Concat(good...))
	for _, o := range good {
		f.Add([]byte{1}, o)
	}
	f.Fuzz(func(t *testing.T, how, ops []byte) {
		defer watchdog.Start()()
		if len(how) == 0 || len(ops) > 24*segmentOp {
			return
		}
		crc := how[0]&howCRC != 0
		var in []byte
		var msn [4]uint32
		var offset uint32
		for ; len(ops) >= segmentOp; ops = ops[segmentOp:] {
			in = append(in, fpdu(crc, segmentOf(ops, &msn, &offset))...)
		}
		v, s := scripted(t, crc, in, pieces(how))
		o := v.outcome()
		switch o.err.(type) {
		case *rdma.ProtocolError, *rdma.TerminateError:
		default:
			if o.err != io.EOF && o.err != io.ErrUnexpectedEOF {
				t.Fatalf("ended with %v", o.err)
			}
		}
		v.q.Close()
		checkCanaries(t, v)
		v.q.tx.Lock()
		defer v.q.tx.Unlock()
		for out := s.out; len(out) > 0; {
			_, out = takeFPDU(t, crc, out)
		}
	})
}

// segmentOf returns the ULPDU of an op. msn counts the messages of each queue, and offset the bytes
// of the Send that is not complete.
func segmentOf(op []byte, msn *[4]uint32, offset *uint32) (b []byte) {
	code, last, wrong := op[0]&0x0F, op[0]&0x10 != 0, op[0]&0x20 != 0
	stags := []uint32{scriptBoth, scriptReads, scriptWrites, 0, 1, 2, 77, 1 << 31}
	stag := stags[op[1]&7]
	if op[1]&8 != 0 {
		stag = 1 + uint32(op[1]>>4) // of a Read
	}
	at, n := binary.BigEndian.Uint32(op[4:]), int(binary.BigEndian.Uint16(op[8:]))
	to := uint64(at)
	if at >= 1<<31 {
		to = uint64(int64(int32(at))) // near the end of what can be counted
	}
	if isTagged := code == 0 || code == 2; isTagged != wrong {
		b = tagged(code, last, stag, to, pattern(op[1], min(n, mpa.MaxULPDU-taggedLen)))
	} else {
		queue := [16]uint32{1: 1, 7: 2}[code]
		payload := pattern(op[1], min(n, mpa.MaxULPDU-untaggedLen))
		mo := uint32(0)
		switch queue {
		case 0:
			mo = *offset
			*offset += uint32(len(payload))
			stag = map[bool]uint32{true: stag}[code == 4 || code == 6]
		case 1:
			payload = readRequestOf(0xAB, 9, uint32(n), stag, to)
			stag = 0
		}
		number := msn[queue] + 1
		if last {
			msn[queue]++
			*offset = 0
		}
		b = untagged(code, last, stag, queue+uint32(op[10]), number+uint32(int8(op[2])), mo+uint32(int8(op[3])), payload)
	}
	b[0] ^= op[11] & 0x03
	b[1] ^= op[11] & 0xC0
	return b
}
