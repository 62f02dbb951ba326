package harness

import (
	"errors"
	"io"
	"net"
)

// Pattern is who sends what to whom. Each has two halves, one for the measuring
// process and one for its peer; both end when every message has arrived.
type Pattern uint8

// The patterns there are.
const (
	RoundTrip Pattern = iota // the peer sends each message back
	Stream                   // the measuring process writes, the peer confirms the end
	Receive                  // the peer writes, the measuring process reads
)

// half is one side of a pattern: n messages of len(buf) bytes over conn. buf's
// capacity is at least readWindow.
type half func(conn net.Conn, buf []byte, n int) error

// readWindow is the least that a stream is read with, however small its
// messages are.
const readWindow = 64 << 10

var patterns = [...]struct {
	name          string
	measure, peer half
}{
	RoundTrip: {"rtt", ask, echo},
	Stream:    {"stream", writeConfirmed, drainAndConfirm},
	Receive:   {"receive", drain, write},
}

// String is the pattern's name in that of a case.
func (p Pattern) String() string { return patterns[p].name }

// errWrongData says that a sampled byte was not the one sent.
var errWrongData = errors.New("data came over wrong")

// ask writes each message and reads it back.
func ask(conn net.Conn, buf []byte, n int) error {
	for k := range n {
		fill(buf, k)
		if _, err := conn.Write(buf); err != nil {
			return err
		}
		if _, err := io.ReadFull(conn, buf); err != nil {
			return err
		}
		if !intact(buf, k*len(buf), len(buf)) {
			return errWrongData
		}
	}
	return nil
}

// echo sends each message back.
func echo(conn net.Conn, buf []byte, n int) error {
	for range n {
		if _, err := io.ReadFull(conn, buf); err != nil {
			return err
		}
		if _, err := conn.Write(buf); err != nil {
			return err
		}
	}
	return nil
}

// write sends messages, each with a Write of its own, from memory that it has
// just written, as a program's would be: a buffer that nobody touches between
// two writes flatters whoever copies least.
func write(conn net.Conn, buf []byte, n int) error {
	for k := range n {
		fill(buf, k)
		if _, err := conn.Write(buf); err != nil {
			return err
		}
	}
	return nil
}

// drain reads n messages as a byte stream, as much at a time as there is.
func drain(conn net.Conn, buf []byte, n int) error {
	size := len(buf)
	window := buf[:cap(buf)]
	for offset, end := 0, n*size; offset < end; {
		got, err := conn.Read(window[:min(len(window), end-offset)])
		if got > 0 && !intact(window[:got], offset, size) {
			return errWrongData
		}
		offset += got
		if err != nil && offset < end {
			return err
		}
	}
	return nil
}

// writeConfirmed writes and waits until the peer has everything, so that the
// time covers delivery.
func writeConfirmed(conn net.Conn, buf []byte, n int) error {
	if err := write(conn, buf, n); err != nil {
		return err
	}
	_, err := io.ReadFull(conn, buf[:1])
	return err
}

// drainAndConfirm reads and tells the writer that it has everything.
func drainAndConfirm(conn net.Conn, buf []byte, n int) error {
	if err := drain(conn, buf, n); err != nil {
		return err
	}
	_, err := conn.Write(buf[:1])
	return err
}
