// Package traffic is what the programs of the soak and of the fault tests do over
// a connection: sessions, in which every byte of either direction is known
// beforehand, so that each end can tell whether what it reads is right.
//
// A session is all in its seed: how many bytes go each way, in Writes of what
// sizes, which deadlines pass in the middle of calls, who ends its direction
// first, and whether the connection is reset instead. Each direction ends with
// the SHA-256 of all before it.
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

// Spec says what a session is like.
type Spec struct {
	Seed      uint64
	Most      uint32 // bytes each way, at most; half of the sessions have far fewer
	Deadlines bool   // some pass in the middle of calls, which go on then
	Resets    bool   // one session in eight is ended with a reset by its client
}

// Result is what one end has seen of a session.
type Result struct {
	Sent, Got int  // bytes, without the hashes
	Passed    int  // deadlines that have passed in a call
	Reset     bool // it was to be reset, and was
}

// EarlyEndError says that an end came before all bytes had. That is how a connection
// ends whose peer was killed, over TCP as well; nothing else excuses it.
type EarlyEndError struct{ What string }

func (e *EarlyEndError) Error() string { return "traffic: " + e.What }

// WrongError says that bytes were delivered which had not been sent there. Nothing that
// happens to a connection excuses it.
type WrongError struct{ What string }

func (e *WrongError) Error() string { return "traffic: " + e.What }

const (
	magic     = "SDP traffic\n"
	headerLen = len(magic) + 8 + 4 + 1
	most      = 1 << 20 // bytes in one Read or Write
	period    = 65521   // a prime, so that no message size divides it
)

// table is what the streams are pieces of.
var table = func() []byte {
	b := make([]byte, period, period+most)
	rand.NewChaCha8([32]byte{1}).Read(b)
	for len(b) < cap(b) {
		b = append(b, b[:min(period, cap(b)-len(b))]...)
	}
	return b
}()

// direction is one way of a session, the same at both ends.
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
	cut      int // bytes sent behind which the client resets; -1: it does not
	toldLast bool
}

// plan makes the session that the spec says.
func plan(c net.Conn, s Spec, client bool) *session {
	r := rand.New(rand.NewPCG(s.Seed, 0))
	size := func() int { return r.IntN(1 + int(s.Most)>>(r.IntN(2)*r.IntN(12))) }
	x := &session{Spec: s, conn: c, cut: -1}
	x.out, x.in = direction{size(), r.IntN(period)}, direction{size(), r.IntN(period)}
	if s.Resets && r.IntN(8) == 0 {
		x.cut = r.IntN(1 + x.out.total)
	}
	if !client {
		x.out, x.in = x.in, x.out
	}
	x.toldLast = r.IntN(2) == 0 == client // who ends its direction behind the other
	return x
}

// Client runs a session on a connection that it has dialled, and closes it.
func Client(c net.Conn, s Spec) (Result, error) {
	b := append([]byte(magic), 0)
	b = binary.BigEndian.AppendUint64(b, s.Seed)
	b = binary.BigEndian.AppendUint32(b, s.Most)
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

// Serve runs the session that the client on c has chosen, and closes c.
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
		Seed: binary.BigEndian.Uint64(rest), Most: binary.BigEndian.Uint32(rest[8:]),
		Deadlines: flags&1 != 0, Resets: flags&2 != 0,
	}
	return plan(c, s, false).run(false)
}

// run moves all bytes both ways.
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
			readErr = nil // it was ended by us
		}
		return r, readErr
	}
	if err != nil {
		s.conn.SetReadDeadline(time.Now().Add(5 * time.Second)) // what has come is looked at
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
			return r, &WrongError{"a connection that was reset ended well"}
		}
		r.Reset = true
		return r, nil
	}
	return r, errors.Join(err, readErr, closeErr)
}

// size is how many bytes a call has: each power of two as likely as the next.
func size(r *rand.Rand) int { return 1 + r.IntN(1<<r.IntN(21)) }

// timed has a call of one direction have a deadline, now and then one that has
// passed or is about to.
func (s *session) timed(r *rand.Rand, set func(time.Time) error) {
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

// again reports that a call has failed because its deadline has passed, and
// clears that.
func (s *session) again(err error, passed *int, set func(time.Time) error) bool {
	if !s.Deadlines || !errors.Is(err, os.ErrDeadlineExceeded) {
		return false
	}
	*passed++
	return set(time.Time{}) == nil
}

// write sends our direction, its hash and its end; that behind the other's if it
// is to be last.
func (s *session) write(sent *int, client bool, read <-chan struct{}) (passed int, err error) {
	r := rand.New(rand.NewPCG(s.Seed, 1+uint64(btoi(client))))
	end := s.out.total
	if client && s.cut >= 0 {
		end = s.cut
	}
	sum := sha256.New()
	for *sent < end {
		s.timed(r, s.conn.SetWriteDeadline)
		b := s.out.at(*sent, min(size(r), end-*sent))
		n, err := s.conn.Write(b)
		sum.Write(b[:n])
		*sent += n
		if err != nil && !s.again(err, &passed, s.conn.SetWriteDeadline) {
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
	if s.toldLast {
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

// read takes in the other direction, and checks it byte by byte, its hash, and
// where it ends.
func (s *session) read(got *int, client bool) (passed int, err error) {
	r := rand.New(rand.NewPCG(s.Seed, 3+uint64(btoi(client))))
	sum := sha256.New()
	buf := make([]byte, most)
	var trailer []byte
	for {
		s.timed(r, s.conn.SetReadDeadline)
		b := buf[:size(r)]
		n, err := s.conn.Read(b)
		payload := b[:min(n, s.in.total-*got)]
		if err := s.check(*got, payload, sum); err != nil {
			return passed, err
		}
		*got += len(payload)
		trailer = append(trailer, b[len(payload):n]...)
		switch {
		case err == nil, s.again(err, &passed, s.conn.SetReadDeadline):
		case err != io.EOF:
			return passed, err
		case *got < s.in.total || len(trailer) < sum.Size():
			return passed, &EarlyEndError{fmt.Sprintf("seed %d: %d bytes of %d came, and a good end", s.Seed, *got, s.in.total)}
		case !bytes.Equal(trailer, sum.Sum(nil)):
			return passed, &WrongError{fmt.Sprintf("seed %d: %d bytes of %d came, a hash of %d bytes, and a good end", s.Seed, *got, s.in.total, len(trailer))}
		default:
			return passed, nil
		}
	}
}

// check compares what has come at off with what was sent.
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
