package iwarp

import (
	"errors"
	"time"
)

// transport is the byte stream below a queue pair. There are two kinds: rawTransport uses the
// descriptor of a kernel socket without blocking; streamTransport takes any net.Conn and has a
// goroutine that writes.
//
// One goroutine at a time calls read. write and waitWrite exclude each other, by the sender's
// mutex and its Carrying flag. The rest is safe for concurrent use.
type transport interface {
	// write writes as much of the pieces, in order, as the stream accepts now. If it returns
	// fewer bytes and a nil error, the stream is full.
	write(pieces [][]byte) (int, error)

	// waitWrite calls step, and again each time the stream may accept more, until step returns
	// true. errWoken: wakeWrite was called.
	waitWrite(step func() bool) error
	wakeWrite()

	// read reads once into the space of sink. With wait it parks until bytes arrive; without,
	// it returns 0 and nil if there are none. io.EOF is the end of the stream; errWoken:
	// wakeRead was called.
	read(sink sink, wait bool) (int, error)
	wakeRead()
	// setBusyPoll sets how long read polls before it parks, if it can poll. It is called before
	// the first read.
	setBusyPoll(d time.Duration)

	// unsent returns how many bytes the peer's end does not have yet, as far as that is known,
	// and how many of these are still in this process. Both are 0 after a reset, or another error
	// of write.
	unsent() (total, inProcess int)

	// settled reports whether this process holds nothing that write has accepted, and settle waits
	// for that. errWoken: wakeWrite was called. One goroutine may be in settle while another one is
	// in waitWrite, and each hears the wake-up.
	settled() bool
	settle() error

	// closeWrite ends this direction after what was written. It does not wait for the peer.
	closeWrite()
	// close closes the stream, abort resets it. Both end every call and wait for the
	// transport's goroutine.
	close() error
	abort() error
}

// sink is where read puts bytes. For each attempt the transport calls space, reads into the two
// pieces in order, and calls got with the count, even if that is 0. parking says that the
// transport is about to park, so that the sink can free memory.
type sink interface {
	space() (first, second []byte)
	got(n int)
	parking()
}

// errWoken means that a parked call was woken and found nothing.
var errWoken = errors.New("iwarp: woken")
