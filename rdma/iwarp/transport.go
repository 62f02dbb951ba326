package iwarp

import (
	"errors"
	"time"
)

// transport is what a queue pair asks of the byte stream under it. There are
// two: rawTransport works the descriptor of a kernel socket without blocking,
// streamTransport takes any net.Conn and has a goroutine that writes.
//
// read belongs to one goroutine at a time; write and waitWrite exclude each
// other (the sender's lock and its pumping flag see to it). The rest is safe for
// concurrent use.
type transport interface {
	// write writes what the stream takes now of the pieces, in order. Fewer
	// bytes than there are, with a nil error, mean that the stream is full.
	write(pieces [][]byte) (int, error)

	// waitWrite calls step, and again each time the stream may take more, until
	// it returns true. errWoken: wakeWrite was called.
	waitWrite(step func() bool) error
	wakeWrite()

	// read reads once into the space that sink has. With wait it parks until
	// something comes; without, 0 and nil mean that there is nothing now.
	// io.EOF is the end of the stream; errWoken: wakeRead was called.
	read(sink sink, wait bool) (int, error)
	wakeRead()
	// setBusyPoll sets how long read looks before it parks, if it can look. Before the
	// first read.
	setBusyPoll(d time.Duration)

	// unsent is how many bytes the peer's end does not have yet, as far as can
	// be told, and how many of them are still in this process.
	unsent() (total, inProcess int)

	// settled reports that nothing that write has taken is in this process, and settle
	// waits for that. errWoken: wakeWrite was called. They belong to waitWrite's
	// goroutine.
	settled() bool
	settle() error

	// unacked is the total of unsent, for a stream of which read has not found the end.
	unacked() int

	// closeWrite ends this direction behind what was written.
	closeWrite() error
	// close closes the stream, abort resets it; both end every call and wait for
	// the transport's goroutine.
	close() error
	abort() error
}

// sink is where read puts bytes. For each attempt the transport calls space,
// reads into the two pieces in order, and calls got with the count, 0 included.
// idle says that it is about to park, so that memory can be given back.
type sink interface {
	space() (first, second []byte)
	got(n int)
	idle()
}

// errWoken says that a parked call was woken and found nothing.
var errWoken = errors.New("iwarp: woken")
