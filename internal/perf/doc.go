// Package perf measures round trips and throughput between two programs, over each device of
// SDP and over TCP. It is what "sdp ping" and "sdp perf" run.
//
// A client opens a connection for each measurement and begins with a request of 16 bytes:
// "sdpperf1", a kind, three bytes of zero, and the size of a block in four bytes, the most
// significant one first. Then
//
//   - for Echo the server sends back what it receives;
//   - for Upload it reads to the end, and answers with the number of bytes in 8 bytes;
//   - for Download it sends until the client closes.
package perf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"
)

// The kinds of a measurement.
const (
	Echo     = 'e'
	Upload   = 'u'
	Download = 'd'
)

const (
	magic      = "sdpperf1"
	requestLen = 16
	// MaxSize is the largest block.
	MaxSize = 16 << 20
	// MaxTime is how long a server lets a measurement take.
	MaxTime = 10 * time.Minute
	// requestTime is how long a client may take to send its request.
	requestTime = 10 * time.Second
)

func appendRequest(b []byte, kind byte, size int) []byte {
	b = append(b, magic...)
	b = append(b, kind, 0, 0, 0)
	return binary.BigEndian.AppendUint32(b, uint32(size))
}

func readRequest(r io.Reader) (kind byte, size int, err error) {
	var b [requestLen]byte
	if _, err := io.ReadFull(r, b[:]); err != nil {
		return 0, 0, err
	}
	if string(b[:8]) != magic || b[9]|b[10]|b[11] != 0 {
		return 0, 0, errors.New("malformed request: not from sdp perf")
	}
	n := binary.BigEndian.Uint32(b[12:])
	if n == 0 || n > MaxSize {
		return 0, 0, fmt.Errorf("block size %d: want 1 to %d", n, MaxSize)
	}
	switch b[8] {
	case Echo, Upload, Download:
		return b[8], int(n), nil
	}
	return 0, 0, fmt.Errorf("unknown kind of measurement %q", b[8])
}
