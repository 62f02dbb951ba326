package mpa

import (
	"encoding/binary"
	"hash/crc32"
	"sync"
)

// An FPDU is the unit on the TCP stream (RFC 5044 §4): the length of the ULPDU, the ULPDU, zeros
// up to a multiple of 4, and the CRC of all of these.
const (
	LengthLen = 2
	CRCLen    = 4
	MaxULPDU  = 1<<16 - 1
)

// castagnoli makes the table when it is needed first: that takes 0.2 ms, which a program without
// iwarp does not spend.
var castagnoli = sync.OnceValue(func() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) })

// Checksum adds b to a CRC (RFC 5044 §4.1), which begins as 0.
func Checksum(sum uint32, b []byte) uint32 { return crc32.Update(sum, castagnoli(), b) }

// TrailerLen is the length of the pad and the CRC after a ULPDU of n bytes.
func TrailerLen(n int) int { return padLen(n) + CRCLen }

// FPDULen is the length on the stream of an FPDU whose ULPDU has n bytes.
func FPDULen(n int) int { return LengthLen + n + TrailerLen(n) }

// AppendTrailer appends what follows a ULPDU of n bytes. sum is the CRC of the length and the
// ULPDU, or 0 if crc is false: the field is then 0 too.
func AppendTrailer(b []byte, n int, crc bool, sum uint32) []byte {
	pad := len(b)
	b = append(b, 0, 0, 0)[:pad+padLen(n)]
	if crc {
		sum = Checksum(sum, b[pad:])
	}
	return binary.LittleEndian.AppendUint32(b, sum)
}

// Intact reports whether b, the end of an FPDU, has the right CRC. sum is the CRC of what
// precedes b.
func Intact(sum uint32, b []byte) bool {
	crc := len(b) - CRCLen
	return Checksum(sum, b[:crc]) == binary.LittleEndian.Uint32(b[crc:])
}

func padLen(n int) int { return -(LengthLen + n) & 3 }
