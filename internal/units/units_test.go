package units

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestBytes(t *testing.T) {
	for text, want := range map[string]int64{
		"0": 0, "1": 1, "4096": 4096, "3k": 3 << 10, "3K": 3 << 10, "512m": 512 << 20, "512M": 512 << 20, "2g": 2 << 30, "2G": 2 << 30,
		"-1": -1, "-1K": -1 << 10, "9223372036854775807": math.MaxInt64, "8589934591G": 8589934591 << 30,
	} {
		got, err := Bytes(text)
		assert.NoError(t, err, text)
		assert.Equal(t, want, got, text)
	}
	for _, text := range []string{"", "K", "x", "1T", "1KB", "1 M", "1.5M", "8589934592G", "-8589934592G", "9223372036854775808"} {
		_, err := Bytes(text)
		assert.EqualError(t, err, "not a number of bytes, such as 512M", text)
	}
}

func TestTime(t *testing.T) {
	for text, want := range map[string]time.Duration{"0": 0, "10us": 10 * time.Microsecond, "10µs": 10 * time.Microsecond, "1m30s": 90 * time.Second, "-1s": -time.Second} {
		got, err := Time(text)
		assert.NoError(t, err, text)
		assert.Equal(t, want, got, text)
	}
	for _, text := range []string{"", "10", "5 s", "x"} {
		_, err := Time(text)
		assert.EqualError(t, err, "not a time, such as 10s or 50us", text)
	}
}
