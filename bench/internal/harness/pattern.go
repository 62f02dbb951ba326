package harness

import (
	"bufio"
	"errors"
	"io"
	"net"
	"time"
)

// A pattern says what client and server send each other on a connection. It has
// two halves, one for each side. Both end when every message has arrived.
type pattern uint8

const (
	roundTrip      pattern = iota // the server sends each message back
	oneWay                        // the client writes, the server confirms the end
	bothWays                      // both write and read at once
	oneWayBuffered                // the client writes, the server reads through a small buffer
)

// half is one side of a pattern. It transfers n messages of len(buf) bytes over
// conn. buf's capacity is at least readWindow.
type half func(conn net.Conn, buf []byte, n int) error

// readWindow is the minimum capacity of a buffer that reads a stream, however small
// the messages are.
const readWindow = 64 << 10

var patterns = [...]struct{ client, server half }{
	roundTrip: {nil, echo}, // the client calls timeRoundTrips
	oneWay:    {writeConfirmed, drainAndConfirm},
	bothWays:  {exchangeConfirmed, exchangeAndConfirm},

	oneWayBuffered: {writeConfirmed, drainBufferedAndConfirm},
}

// errWrongData says that a sampled byte differed from the one sent.
var errWrongData = errors.New("received data differs from sent data")

// timeRoundTrips writes each message and reads it back. If pause is not zero, it
// waits before each message; the pause is not timed.
func timeRoundTrips(conn net.Conn, buf []byte, n int, pause time.Duration, timer *timer) error {
	timer.start()
	for k := range n {
		if pause > 0 {
			sleep(pause)
			timer.start()
		}
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
		timer.lap()
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

// write sends messages with one Write each, from memory that it has just written,
// as a program would. A buffer that does not change between Writes would flatter
// transports that copy less.
func write(conn net.Conn, buf []byte, n int) error {
	for k := range n {
		fill(buf, k)
		if _, err := conn.Write(buf); err != nil {
			return err
		}
	}
	return nil
}

// drain reads n messages as a byte stream, as much at a time as is available.
func drain(conn net.Conn, buf []byte, n int) error {
	return drainInto(buf[:cap(buf)], conn, len(buf), n)
}

// drainInto reads n messages of size bytes, at most len(window) bytes at a time.
func drainInto(window []byte, from io.Reader, size, n int) error {
	for offset, end := 0, n*size; offset < end; {
		got, err := from.Read(window[:min(len(window), end-offset)])
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

// drainBuffered reads n messages through a bufio.Reader, half of its buffer at a
// time, because it bypasses the buffer for larger reads.
func drainBuffered(conn net.Conn, buf []byte, n int) error {
	const buffer = 4 << 10
	from := bufio.NewReaderSize(io.LimitReader(conn, int64(n)*int64(len(buf))), buffer)
	return drainInto(make([]byte, buffer/2), from, len(buf), n)
}

// writeConfirmed writes and waits until the server has read everything, so that
// the time covers delivery.
func writeConfirmed(conn net.Conn, buf []byte, n int) error {
	if err := write(conn, buf, n); err != nil {
		return err
	}
	return awaitConfirmation(conn)
}

// drainAndConfirm reads everything and then confirms.
func drainAndConfirm(conn net.Conn, buf []byte, n int) error {
	if err := drain(conn, buf, n); err != nil {
		return err
	}
	return confirm(conn)
}

// exchange writes and reads at once.
func exchange(conn net.Conn, buf []byte, n int) error {
	read := make(chan error, 1)
	go func() { read <- drain(conn, sized(nil, len(buf)), n) }()
	err := write(conn, buf, n)
	if err != nil {
		conn.Close() // ends the reader
	}
	return errors.Join(err, <-read)
}

func exchangeConfirmed(conn net.Conn, buf []byte, n int) error {
	if err := exchange(conn, buf, n); err != nil {
		return err
	}
	return awaitConfirmation(conn)
}

func exchangeAndConfirm(conn net.Conn, buf []byte, n int) error {
	if err := exchange(conn, buf, n); err != nil {
		return err
	}
	return confirm(conn)
}

// drainBufferedAndConfirm is drainAndConfirm through a small buffer.
func drainBufferedAndConfirm(conn net.Conn, buf []byte, n int) error {
	if err := drainBuffered(conn, buf, n); err != nil {
		return err
	}
	return confirm(conn)
}

// confirmation is the byte by which the server says that it has read everything.
const confirmation = 0x2a

func confirm(conn net.Conn) error {
	_, err := conn.Write([]byte{confirmation})
	return err
}

func awaitConfirmation(conn net.Conn) error {
	var b [1]byte
	_, err := io.ReadFull(conn, b[:])
	if err == nil && b[0] != confirmation {
		err = errWrongData
	}
	return err
}

// sized returns buf resliced to size, or a new buffer that is large enough for a half.
func sized(buf []byte, size int) []byte {
	if cap(buf) < max(size, readWindow) {
		return make([]byte, size, max(size, readWindow))
	}
	return buf[:size]
}
