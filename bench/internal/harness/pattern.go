package harness

import (
	"bufio"
	"errors"
	"io"
	"net"
	"time"
)

// A pattern is who sends what to whom on a connection. Each has two halves, one
// for the client and one for the server; both end when every message has
// arrived.
type pattern uint8

const (
	roundTrip      pattern = iota // the server sends each message back
	oneWay                        // the client writes, the server confirms the end
	bothWays                      // both write and read at once
	oneWayBuffered                // the client writes, the server reads through a small buffer
)

// half is one side of a pattern: n messages of len(buf) bytes over conn. buf's
// capacity is at least readWindow.
type half func(conn net.Conn, buf []byte, n int) error

// readWindow is the least that a stream is read with, however small its
// messages are.
const readWindow = 64 << 10

var patterns = [...]struct{ client, server half }{
	roundTrip: {nil, echo}, // the client asks, and is timed
	oneWay:    {writeConfirmed, drainAndConfirm},
	bothWays:  {exchangeConfirmed, exchangeAndConfirm},

	oneWayBuffered: {writeConfirmed, sipAndConfirm},
}

// errWrongData says that a sampled byte was not the one sent.
var errWrongData = errors.New("data came over wrong")

// ask writes each message and reads it back, after a silence if there is to be
// one, which is not timed.
func ask(conn net.Conn, buf []byte, n int, silence time.Duration, timer *timer) error {
	timer.start()
	for k := range n {
		if silence > 0 {
			sleep(silence)
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
	return drainInto(buf[:cap(buf)], conn, len(buf), n)
}

// drainInto reads n messages of size bytes, at most a window at a time.
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

// sip reads n messages through a bufio.Reader, half of what that holds at a time:
// it reads the connection itself if it is asked for more.
func sip(conn net.Conn, buf []byte, n int) error {
	const buffer = 4 << 10
	from := bufio.NewReaderSize(io.LimitReader(conn, int64(n)*int64(len(buf))), buffer)
	return drainInto(make([]byte, buffer/2), from, len(buf), n)
}

// writeConfirmed writes and waits until the server has everything, so that the
// time covers delivery.
func writeConfirmed(conn net.Conn, buf []byte, n int) error {
	if err := write(conn, buf, n); err != nil {
		return err
	}
	return confirmed(conn)
}

// drainAndConfirm reads and tells the client that everything is there.
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
		conn.Close() // so that the reader ends
	}
	return errors.Join(err, <-read)
}

func exchangeConfirmed(conn net.Conn, buf []byte, n int) error {
	if err := exchange(conn, buf, n); err != nil {
		return err
	}
	return confirmed(conn)
}

func exchangeAndConfirm(conn net.Conn, buf []byte, n int) error {
	if err := exchange(conn, buf, n); err != nil {
		return err
	}
	return confirm(conn)
}

// sipAndConfirm is drainAndConfirm through a small buffer.
func sipAndConfirm(conn net.Conn, buf []byte, n int) error {
	if err := sip(conn, buf, n); err != nil {
		return err
	}
	return confirm(conn)
}

// confirmation is the byte that tells the client that everything is there.
const confirmation = 0x2a

func confirm(conn net.Conn) error {
	_, err := conn.Write([]byte{confirmation})
	return err
}

func confirmed(conn net.Conn) error {
	var b [1]byte
	_, err := io.ReadFull(conn, b[:])
	if err == nil && b[0] != confirmation {
		err = errWrongData
	}
	return err
}

// sized returns buf with that length, or a new one, for a half.
func sized(buf []byte, size int) []byte {
	if cap(buf) < max(size, readWindow) {
		return make([]byte, size, max(size, readWindow))
	}
	return buf[:size]
}
