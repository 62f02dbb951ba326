package mpa

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestChecksum checks the values of RFC 3720 §B.4, in one piece and in two.
func TestChecksum(t *testing.T) {
	for _, v := range []struct {
		of   []byte
		want uint32
	}{
		{make([]byte, 32), 0x8A9136AA},
		{slices.Repeat([]byte{0xFF}, 32), 0x62A8AB43},
		{[]byte("123456789"), 0xE3069283},
	} {
		assert.Equal(t, v.want, Checksum(0, v.of))
		assert.Equal(t, v.want, Checksum(Checksum(0, v.of[:5]), v.of[5:]))
	}
}

// TestFPDU: an FPDU has a length that is a multiple of 4, zeros as pad, and a CRC of everything
// before it.
func TestFPDU(t *testing.T) {
	for n := range 64 {
		for _, crc := range []bool{false, true} {
			b := append([]byte{0, byte(n)}, slices.Repeat([]byte{0xA5}, n)...)
			var sum uint32
			if crc {
				sum = Checksum(0, b)
			}
			whole := AppendTrailer(b, n, crc, sum)
			assert.Len(t, whole, FPDULen(n))
			assert.Zero(t, len(whole)%4)
			assert.Less(t, TrailerLen(n)-CRCLen, 4)
			end := whole[LengthLen+n:]
			assert.Len(t, end, TrailerLen(n))
			assert.Equal(t, make([]byte, len(end)-CRCLen), end[:len(end)-CRCLen])
			if !crc {
				assert.Equal(t, make([]byte, CRCLen), end[len(end)-CRCLen:])
				continue
			}
			assert.True(t, Intact(0, whole))
			assert.True(t, Intact(sum, end))
			for i := range whole {
				whole[i]++
				assert.False(t, Intact(0, whole), "byte %d of %d differs", i, len(whole))
				whole[i]--
			}
		}
	}
}

func TestULPDU(t *testing.T) {
	for _, v := range []struct{ asked, want int }{
		{0, 1460 - 6},
		{64768, 64768},
		{1, minULPDU},
		{1 << 20, 65535},
	} {
		cfg := Config{MaxULPDU: v.asked}
		assert.Equal(t, v.want, cfg.ULPDU(1460), "%d asked for", v.asked)
	}
	var cfg Config
	for mss := 536; mss < 9000; mss++ {
		n := cfg.ULPDU(mss)
		assert.LessOrEqual(t, FPDULen(n), mss)
		assert.Greater(t, FPDULen(n), mss-4, "no room is wasted")
	}
}
