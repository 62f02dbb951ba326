package iwarp

import (
	"encoding/binary"
	"encoding/hex"
	"slices"
	"strings"
	"testing"

	"github.com/gosdp/gosdp/rdma/iwarp/mpa"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The tests of this package have a peer that is written from the RFCs and uses nothing of the
// package, so that no mistake can be on both sides.

// crc32c is RFC 3720 §12.1's CRC32C, a bit at a time.
func crc32c(b []byte) uint32 {
	sum := ^uint32(0)
	for _, x := range b {
		sum ^= uint32(x)
		for range 8 {
			low := sum & 1
			sum >>= 1
			if low != 0 {
				sum ^= 0x82F63B78
			}
		}
	}
	return ^sum
}

// fpdu frames a ULPDU. Without crc the field is 0.
func fpdu(crc bool, ulpdu []byte) []byte {
	b := binary.BigEndian.AppendUint16(nil, uint16(len(ulpdu)))
	b = append(b, ulpdu...)
	for len(b)%4 != 0 {
		b = append(b, 0)
	}
	var sum uint32
	if crc {
		sum = crc32c(b)
	}
	return binary.LittleEndian.AppendUint32(b, sum)
}

// tagged returns a tagged DDP segment; last is the L flag.
func tagged(op byte, last bool, stag uint32, to uint64, payload []byte) []byte {
	b := []byte{0x81, 0x40 | op}
	if last {
		b[0] |= 0x40
	}
	b = binary.BigEndian.AppendUint32(b, stag)
	b = binary.BigEndian.AppendUint64(b, to)
	return append(b, payload...)
}

// untagged returns an untagged DDP segment.
func untagged(op byte, last bool, stag, qn, msn, mo uint32, payload []byte) []byte {
	b := []byte{0x01, 0x40 | op}
	if last {
		b[0] |= 0x40
	}
	for _, field := range []uint32{stag, qn, msn, mo} {
		b = binary.BigEndian.AppendUint32(b, field)
	}
	return append(b, payload...)
}

// readRequestOf returns the payload of a Read Request.
func readRequestOf(sinkSTag uint32, sinkTO uint64, size, srcSTag uint32, srcTO uint64) []byte {
	b := binary.BigEndian.AppendUint32(nil, sinkSTag)
	b = binary.BigEndian.AppendUint64(b, sinkTO)
	b = binary.BigEndian.AppendUint32(b, size)
	b = binary.BigEndian.AppendUint32(b, srcSTag)
	return binary.BigEndian.AppendUint64(b, srcTO)
}

// takeFPDU cuts the first FPDU from a stream, checks it and returns its ULPDU.
func takeFPDU(t testing.TB, crc bool, stream []byte) (ulpdu, rest []byte) {
	t.Helper()
	require.GreaterOrEqual(t, len(stream), 2, "an FPDU is cut short")
	n := int(binary.BigEndian.Uint16(stream))
	end := (2 + n + 3) &^ 3
	require.GreaterOrEqual(t, len(stream), end+4, "an FPDU of %d bytes is cut short", n)
	for _, pad := range stream[2+n : end] {
		assert.Zero(t, pad, "the pad is zeros")
	}
	var sum uint32
	if crc {
		sum = crc32c(stream[:end])
	}
	require.Equal(t, sum, binary.LittleEndian.Uint32(stream[end:]), "CRC of an FPDU of %d bytes", n)
	return stream[2 : 2+n], stream[end+4:]
}

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.Join(strings.Fields(s), ""))
	require.NoError(t, err)
	return b
}

// TestCRC32C checks the values of RFC 3720 §B.4.
func TestCRC32C(t *testing.T) {
	for _, v := range []struct {
		of   []byte
		want uint32
	}{
		{make([]byte, 32), 0x8A9136AA},
		{slices.Repeat([]byte{0xFF}, 32), 0x62A8AB43},
		{[]byte("123456789"), 0xE3069283},
	} {
		assert.Equal(t, v.want, crc32c(v.of))
	}
}

// TestFPDU checks one FPDU of each kind, written by hand from RFC 5040 §4 and RFC 5041 §4, without
// its CRC.
func TestFPDU(t *testing.T) {
	request := readRequest{sinkSTag: 0x01020304, sinkTO: 0x1112131415161718, size: 0x21222324,
		srcSTag: 0x31323334, srcTO: 0x4142434445464748}
	for _, v := range []struct {
		name    string
		segment segment
		payload []byte
		want    string
	}{
		{"Write", segment{tagged: true, last: true, op: opWrite, stag: 0xA1A2A3A4, to: 0xB1B2B3B4B5B6B7B8}, []byte("abc"),
			"0011 c1 40 a1a2a3a4 b1b2b3b4b5b6b7b8 616263 00"},
		{"Write that goes on", segment{tagged: true, op: opWrite, stag: 1, to: 2}, []byte("ab"),
			"0010 81 40 00000001 0000000000000002 6162 0000"},
		{"Write of nothing", segment{tagged: true, last: true, op: opWrite, stag: 1}, nil,
			"000e c1 40 00000001 0000000000000000"},
		{"Read Request", segment{last: true, op: opReadRequest, qn: 1, msn: 7}, request.appendTo(nil),
			"002e 41 41 00000000 00000001 00000007 00000000 01020304 1112131415161718 21222324 31323334 4142434445464748"},
		{"Read Response", segment{tagged: true, last: true, op: opReadResponse, stag: 0x01020304, to: 5}, []byte("a"),
			"000f c1 42 01020304 0000000000000005 61 000000"},
		{"Send", segment{last: true, op: opSend, msn: 1}, []byte("ab"),
			"0014 41 43 00000000 00000000 00000001 00000000 6162 0000"},
		{"Send that goes on", segment{op: opSend, msn: 0xFFFFFFFF, mo: 0x10000}, nil,
			"0012 01 43 00000000 00000000 ffffffff 00010000"},
		{"Send with Invalidate", segment{last: true, op: opSendInvalidate, stag: 0xA1A2A3A4, msn: 2}, []byte("a"),
			"0013 41 44 a1a2a3a4 00000000 00000002 00000000 61 000000"},
		{"Send with SE", segment{last: true, op: opSendSolicited, msn: 3}, []byte("abc"),
			"0015 41 45 00000000 00000000 00000003 00000000 616263 00"},
		{"Send with SE and Invalidate", segment{last: true, op: opSendSolicitedInvalidate, stag: 9, msn: 4}, []byte("abcd"),
			"0016 41 46 00000009 00000000 00000004 00000000 61626364"},
		{"Terminate", segment{last: true, op: opTerminate, qn: 2, msn: 1}, []byte{0x20, 0x02, 0, 0},
			"0016 41 47 00000000 00000002 00000001 00000000 20020000"},
	} {
		t.Run(v.name, func(t *testing.T) {
			before := unhex(t, v.want)
			for _, crc := range []bool{false, true} {
				var sum uint32
				if crc {
					sum = crc32c(before)
				}
				want := binary.LittleEndian.AppendUint32(slices.Clone(before), sum)
				// As one payload, and as a header and a payload.
				for cut := range len(v.payload) + 1 {
					b := newBatch(crc)
					b.add(&v.segment, v.payload[:cut], v.payload[cut:])
					assert.Equal(t, want, slices.Concat(b.close()...))
					assert.Equal(t, len(want), b.total)
					b.free()
				}
				assert.Equal(t, len(want), mpa.FPDULen(int(binary.BigEndian.Uint16(want))))
			}
			var got segment
			require.NoError(t, got.parse(before[mpa.LengthLen:]))
			assert.Equal(t, v.segment, got)
		})
	}
	var got readRequest
	got.parse(request.appendTo(nil))
	assert.Equal(t, request, got)
}

// TestLongPayload: a long payload is written from the caller's slice, with CRC and pad separate.
func TestLongPayload(t *testing.T) {
	for _, n := range []int{inlineMax - 1, inlineMax, inlineMax + 1, inlineMax + 2, inlineMax + 3, mpa.SoftwareULPDU - untaggedLen} {
		payload := pattern(byte(n), n)
		for _, crc := range []bool{false, true} {
			b := newBatch(crc)
			s := segment{last: true, op: opSend, msn: 1}
			b.add(&s, nil, payload)
			b.add(&s, []byte("header"), payload[:1])
			pieces := b.close()
			stream := slices.Concat(pieces...)
			ulpdu, stream := takeFPDU(t, crc, stream)
			assert.Equal(t, untagged(3, true, 0, 0, 1, 0, payload), ulpdu)
			ulpdu, stream = takeFPDU(t, crc, stream)
			assert.Equal(t, untagged(3, true, 0, 0, 1, 0, append([]byte("header"), payload[0])), ulpdu)
			assert.Empty(t, stream)
			if n > inlineMax {
				assert.Same(t, &payload[0], &pieces[1][0], "no copy of %d bytes", n)
			}
			b.free()
		}
	}
}

// TestTerminateLayout: a Terminate has the layout of RFC 5040 §4.8: control, length of the segment,
// headers of DDP and of the Read Request.
func TestTerminateLayout(t *testing.T) {
	send := unhex(t, "41 43 00000000 00000000 00000009 00000000")
	write := unhex(t, "c1 40 a1a2a3a4 b1b2b3b4b5b6b7b8")
	request := append(unhex(t, "41 41 00000000 00000001 00000007 00000000"), pattern(1, readRequestLen)...)
	for _, v := range []struct {
		name  string
		kind  terminateKind
		code  uint8
		ulpdu []byte
		want  string
	}{
		{"CRC", termMPA, 2, append(slices.Clone(send), "data"...), "20 02 00 00"},
		{"no header is there", termUntagged, 2, nil, "12 02 00 00"},
		{"half a header is there", termUntagged, 2, send[:17], "12 02 00 00"},
		{"no buffer", termUntagged, 2, append(slices.Clone(send), "data"...), "12 02 c0 00 0016 " + hex.EncodeToString(send)},
		{"bounds of a Write", termTagged, 1, append(slices.Clone(write), "da"...), "11 01 c0 00 0010 " + hex.EncodeToString(write)},
		{"rights of a Read", termRDMAPProtection, 2, request, "01 02 e0 00 002e " + hex.EncodeToString(request)},
		{"opcode", termRDMAPOperation, 6, send, "02 06 c0 00 0012 " + hex.EncodeToString(send)},
	} {
		t.Run(v.name, func(t *testing.T) {
			f := violation(v.kind, v.code, "rule", "what").(*fault)
			want := unhex(t, v.want)
			assert.Equal(t, want, appendTerminate(nil, f, v.ulpdu, len(v.ulpdu)))
			got := parseTerminate(want)
			assert.Equal(t, [3]uint8{want[0] >> 4, want[0] & 15, want[1]}, [3]uint8{got.Layer, got.Type, got.Code})
		})
	}
	for _, cut := range []string{"", "20"} {
		assert.NotNil(t, parseTerminate(unhex(t, cut)), "a Terminate of %d bytes", len(cut)/2)
	}
}

// pattern returns n bytes that show their position.
func pattern(seed byte, n int) []byte {
	b := make([]byte, n)
	x := uint32(seed)*2654435761 + 1
	for i := range b {
		x = x*1664525 + 1013904223
		b[i] = byte(x >> 24)
	}
	return b
}
