// Package conntest has what the tests of several packages need to test connections.
package conntest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"runtime/debug"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// The stream is what tests send: its bytes at different places differ, and both
// processes know it. It repeats itself after StreamPeriod bytes.
const (
	StreamPeriod = 65521   // a prime, so that no message size divides it
	StreamMax    = 1 << 20 // bytes that StreamAt returns at most
)

// Streamed is one period of the stream and StreamMax bytes.
var Streamed = func() []byte {
	b := make([]byte, StreamPeriod, StreamPeriod+StreamMax)
	rand.NewChaCha8([32]byte{}).Read(b)
	for len(b) < cap(b) {
		b = append(b, b[:min(StreamPeriod, cap(b)-len(b))]...)
	}
	return b
}()

// StreamAt returns n bytes of the stream, at most StreamMax, from offset off.
func StreamAt(off, n int) []byte { return Streamed[off%StreamPeriod:][:n] }

// CheckStream compares b with the stream at offset off.
func CheckStream(off int, b []byte) error {
	if want := StreamAt(off, len(b)); !bytes.Equal(want, b) {
		i := 0
		for b[i] == want[i] {
			i++
		}
		return fmt.Errorf("the stream differs at byte %d", off+i)
	}
	return nil
}

// WriteStream writes the stream from offset off to end, size bytes at a time,
// and returns how far it came.
func WriteStream(w io.Writer, off, end, size int) (int, error) {
	for off < end {
		n, err := w.Write(StreamAt(off, min(size, end-off)))
		off += n
		if err != nil {
			return off, err
		}
	}
	return off, nil
}

// ReadStream reads and checks the stream from offset off to end, at most size
// bytes at a time, and returns how far it came. An early end is io.EOF.
func ReadStream(r io.Reader, off, end, size int) (int, error) {
	b := make([]byte, size)
	for off < end {
		n, err := r.Read(b[:min(size, end-off)])
		if err := CheckStream(off, b[:n]); err != nil {
			return off, err
		}
		off += n
		if err != nil {
			return off, err
		}
	}
	return off, nil
}

// Forever is more than any test sends.
const Forever = 1 << 60

// RaceEnabled tells that the test binary was built with -race.
var RaceEnabled = func() bool {
	info, ok := debug.ReadBuildInfo()
	return ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}()

// Conn is a connection whose direction to the peer can be closed alone.
type Conn interface {
	net.Conn
	CloseWrite() error
}

// BothWays has random Writes and Reads of total bytes at both ends.
func BothWays(t *testing.T, c, s Conn, seed uint64, total int) {
	t.Helper()
	var calls sync.WaitGroup
	for i, c := range []Conn{c, s} {
		calls.Go(func() {
			r := rand.New(rand.NewPCG(seed, uint64(2*i)))
			assert.NoError(t, randomWrites(c, r, total))
		})
		calls.Go(func() {
			r := rand.New(rand.NewPCG(seed, uint64(2*i+1)))
			assert.NoError(t, randomReads(c, r, total))
		})
	}
	calls.Wait()
}

// randomSize returns 1 to StreamMax, each power of two as likely as the next.
func randomSize(r *rand.Rand) int { return 1 + r.IntN(1<<r.IntN(21)) }

// randomDeadline sets a deadline now and then, of which some have passed.
func randomDeadline(r *rand.Rand, set func(time.Time) error) error {
	switch r.IntN(8) {
	case 0:
		return set(time.Now().Add(time.Duration(r.IntN(500)-50) * time.Microsecond))
	case 1, 2:
		return set(time.Now().Add(time.Minute))
	}
	return nil
}

func randomWrites(c Conn, r *rand.Rand, total int) error {
	for off := 0; off < total; {
		if err := randomDeadline(r, c.SetWriteDeadline); err != nil {
			return err
		}
		n, err := c.Write(StreamAt(off, min(randomSize(r), total-off)))
		off += n
		if errors.Is(err, os.ErrDeadlineExceeded) {
			err = c.SetWriteDeadline(time.Now().Add(time.Minute))
		}
		if err != nil {
			return fmt.Errorf("at byte %d: %w", off, err)
		}
	}
	c.SetWriteDeadline(time.Now().Add(time.Minute))
	return c.CloseWrite()
}

func randomReads(c Conn, r *rand.Rand, total int) error {
	for off := 0; ; {
		if err := randomDeadline(r, c.SetReadDeadline); err != nil {
			return err
		}
		b := make([]byte, randomSize(r))
		n, err := c.Read(b)
		if err := CheckStream(off, b[:n]); err != nil {
			return err
		}
		off += n
		switch {
		case err == io.EOF && off == total:
			return nil
		case errors.Is(err, os.ErrDeadlineExceeded):
			err = c.SetReadDeadline(time.Now().Add(time.Minute))
		}
		if err != nil {
			return fmt.Errorf("at byte %d: %w", off, err)
		}
	}
}
