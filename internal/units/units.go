// Package units parses the sizes and times that operators write: in the environment, in options and in
// flags.
package units

import (
	"errors"
	"math"
	"strconv"
	"time"
)

// Bytes parses a number of bytes, such as 512M. K, M and G are powers of 1024. The number may be negative.
func Bytes(text string) (int64, error) {
	digits, shift := text, 0
	if n := len(text); n > 0 {
		switch text[n-1] {
		case 'k', 'K':
			shift = 10
		case 'm', 'M':
			shift = 20
		case 'g', 'G':
			shift = 30
		}
		if shift > 0 {
			digits = text[:n-1]
		}
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || n > math.MaxInt64>>shift || n < -(math.MaxInt64>>shift) {
		return 0, errors.New("not a number of bytes, such as 512M")
	}
	return n << shift, nil
}

// Time parses a time, such as 10s or 50us. Only 0 needs no unit.
func Time(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0, errors.New("not a time, such as 10s or 50us")
	}
	return d, nil
}
