// Package traffic provides what the soak and fault tests do over a
// connection: sessions in which both ends know every byte of both directions in advance, so
// that each end can check what it reads.
//
// The seed determines everything in a session: how many bytes go each way, the sizes of the
// Writes, which deadlines expire during calls, which end closes its direction first, and
// whether the connection is reset instead. Each direction ends with the SHA-256 of all bytes
// before it.
package traffic

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"time"
)

// Spec specifies a session.
type Spec struct {
	Seed      uint64
	MaxBytes  uint32 // maximum number of bytes each way; half of the sessions have far fewer
	Deadlines bool   // some deadlines expire during calls, which are then repeated
	Resets    bool   // the client resets one session in eight
}

// Result is what one end observed in a session.
type Result struct {
	Sent, Got int  // bytes without the hashes
	Passed    int  // deadlines that expired during a call
	Reset     bool // the connection was reset, as planned
}

// EarlyEndError says that the stream ended before all bytes had arrived. This is only permitted
// if the peer was killed, as over TCP.
type EarlyEndError struct{ What string }

func (e *EarlyEndError) Error() string { return "traffic: " + e.What }

// WrongError says that a byte arrived that was not sent at that position. This is never
// permitted.
type WrongError struct{ What string }

func (e *WrongError) Error() string { return "traffic: " + e.What }

const (
	magic     = "SDP traffic\n"
	headerLen = len(magic) + 8 + 4 + 1
	maxCall   = 1 << 20 // maximum number of bytes in one Read or Write
	period    = 65521   // a prime, so that no message size divides it
)

// table has the bytes of which all streams are parts.
var table = func() []byte {
	b := make([]byte, period, period+maxCall)
	rand.NewChaCha8([32]byte{1}).Read(b)
	for len(b) < cap(b) {
		b = append(b, b[:min(period, cap(b)-len(b))]...)
	}
	return b
}()

// direction is one direction of a session. It is the same at both ends.
type direction struct {
	total int
	begin int // in the table
}

func (d *direction) at(off, n int) []byte { return table[(d.begin+off)%period:][:n] }

// session is one end of a session.
type session struct {
	Spec
	conn     net.Conn
	out, in  direction
	cut      int // number of bytes after which the client resets; -1 means no reset
	endsLast bool
}

// plan derives a session from its spec.
func plan(c net.Conn, s Spec, client bool) *session {
	r := rand.New(rand.NewPCG(s.Seed, 0))
	size := func() int { return r.IntN(1 + int(s.MaxBytes)>>(r.IntN(2)*r.IntN(12))) }
	x := &session{Spec: s, conn: c, cut: -1}
	x.out, x.in = direction{size(), r.IntN(period)}, direction{size(), r.IntN(period)}
	if s.Resets && r.IntN(8) == 0 {
		x.cut = r.IntN(1 + x.out.total)
	}
	if !client {
		x.out, x.in = x.in, x.out
	}
	x.endsLast = r.IntN(2) == 0 == client // this end closes its direction last
	return x
}

// Client runs a session on a connection that it dialled, and closes it.
func Client(c net.Conn, s Spec) (Result, error) {
	b := append([]byte(magic), 0)
	b = binary.BigEndian.AppendUint64(b, s.Seed)
	b = binary.BigEndian.AppendUint32(b, s.MaxBytes)
	if s.Deadlines {
		b[len(magic)] |= 1
	}
	if s.Resets {
		b[len(magic)] |= 2
	}
	if _, err := c.Write(b); err != nil {
		c.Close()
		return Result{}, err
	}
	return plan(c, s, true).run(true)
}

// Serve runs the session that the client on c chose, and closes c.
func Serve(c net.Conn) (Result, error) {
	b := make([]byte, headerLen)
	if _, err := io.ReadFull(c, b); err != nil {
		c.Close()
		return Result{}, err
	}
	if string(b[:len(magic)]) != magic {
		c.Close()
		return Result{}, &WrongError{fmt.Sprintf("a session begins with %q", b)}
	}
	flags, rest := b[len(magic)], b[len(magic)+1:]
	s := Spec{
		Seed: binary.BigEndian.Uint64(rest), MaxBytes: binary.BigEndian.Uint32(rest[8:]),
		Deadlines: flags&1 != 0, Resets: flags&2 != 0,
	}
	return plan(c, s, false).run(false)
}

// run transfers all bytes in both directions.
func (s *session) run(client bool) (r Result, err error) {
	var reading sync.WaitGroup
	var readErr error
	read, passed := make(chan struct{}), 0
	reading.Go(func() {
		defer close(read)
		passed, readErr = s.read(&r.Got, client)
	})
	writePassed, err := s.write(&r.Sent, client, read)
	if client && s.cut >= 0 && err == nil {
		s.conn.(interface{ SetLinger(int) error }).SetLinger(0)
		r.Reset = true
		s.conn.Close()
		reading.Wait()
		var wrong *WrongError
		if !errors.As(readErr, &wrong) {
			readErr = nil // this end reset the connection
		}
		return r, readErr
	}
	if err != nil {
		s.conn.SetReadDeadline(time.Now().Add(5 * time.Second)) // check what has arrived
	}
	reading.Wait()
	r.Passed = passed + writePassed
	closeErr := s.conn.Close()
	if !client && s.cut >= 0 {
		var wrong *WrongError
		if errors.As(readErr, &wrong) {
			return r, readErr
		}
		if readErr == nil {
			return r, &WrongError{"a connection that was reset ended without an error"}
		}
		r.Reset = true
		return r, nil
	}
	return r, errors.Join(err, readErr, closeErr)
}

// size returns the number of bytes for a call. Each power of two is equally likely.
func size(r *rand.Rand) int { return 1 + r.IntN(1<<r.IntN(21)) }

// maybeSetDeadline sometimes sets a deadline for a call. A few of them have passed already, or
// expire at once.
func (s *session) maybeSetDeadline(r *rand.Rand, set func(time.Time) error) {
	if !s.Deadlines {
		return
	}
	switch r.IntN(16) {
	case 0:
		set(time.Now().Add(time.Duration(r.IntN(500)-50) * time.Microsecond))
	case 1, 2:
		set(time.Now().Add(time.Hour))
	}
}

// retry reports whether a call failed because its deadline expired, and clears the deadline.
func (s *session) retry(err error, passed *int, set func(time.Time) error) bool {
	if !s.Deadlines || !errors.Is(err, os.ErrDeadlineExceeded) {
		return false
	}
	*passed++
	return set(time.Time{}) == nil
}

// write sends this end's direction, its hash, and the end of the stream. If this end closes last,
// it first waits for the end of the other direction.
func (s *session) write(sent *int, client bool, read <-chan struct{}) (passed int, err error) {
	r := rand.New(rand.NewPCG(s.Seed, 1+uint64(btoi(client))))
	end := s.out.total
	if client && s.cut >= 0 {
		end = s.cut
	}
	sum := sha256.New()
	for *sent < end {
		s.maybeSetDeadline(r, s.conn.SetWriteDeadline)
		b := s.out.at(*sent, min(size(r), end-*sent))
		n, err := s.conn.Write(b)
		sum.Write(b[:n])
		*sent += n
		if err != nil && !s.retry(err, &passed, s.conn.SetWriteDeadline) {
			return passed, err
		}
	}
	if client && s.cut >= 0 {
		return passed, nil
	}
	if err := s.conn.SetWriteDeadline(time.Time{}); err != nil {
		return passed, err
	}
	if _, err := s.conn.Write(sum.Sum(nil)); err != nil {
		return passed, err
	}
	if s.endsLast {
		<-read
	}
	return passed, s.conn.(interface{ CloseWrite() error }).CloseWrite()
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// read reads the other direction. It checks every byte, the hash, and where the stream ends.
func (s *session) read(got *int, client bool) (passed int, err error) {
	r := rand.New(rand.NewPCG(s.Seed, 3+uint64(btoi(client))))
	sum := sha256.New()
	buf := make([]byte, maxCall)
	var trailer []byte
	for {
		s.maybeSetDeadline(r, s.conn.SetReadDeadline)
		b := buf[:size(r)]
		n, err := s.conn.Read(b)
		payload := b[:min(n, s.in.total-*got)]
		if err := s.check(*got, payload, sum); err != nil {
			return passed, err
		}
		*got += len(payload)
		trailer = append(trailer, b[len(payload):n]...)
		switch {
		case err == nil, s.retry(err, &passed, s.conn.SetReadDeadline):
		case err != io.EOF:
			return passed, err
		case *got < s.in.total || len(trailer) < sum.Size():
			return passed, &EarlyEndError{fmt.Sprintf("seed %d: %d of %d bytes arrived, then EOF", s.Seed, *got, s.in.total)}
		case !bytes.Equal(trailer, sum.Sum(nil)):
			return passed, &WrongError{fmt.Sprintf("seed %d: %d of %d bytes arrived, then %d bytes that are not their hash, then EOF", s.Seed, *got, s.in.total, len(trailer))}
		default:
			return passed, nil
		}
	}
}

// check compares the bytes received at off with those sent.
func (s *session) check(off int, b []byte, sum hash.Hash) error {
	sum.Write(b)
	want := s.in.at(off, len(b))
	if bytes.Equal(want, b) {
		return nil
	}
	i := 0
	for b[i] == want[i] {
		i++
	}
	return &WrongError{fmt.Sprintf("seed %d: byte %d is %#x, and was sent as %#x", s.Seed, off+i, b[i], want[i])}
}
