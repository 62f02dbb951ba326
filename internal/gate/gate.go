// Package gate moves one direction of a connection between a TCP socket and a ring in shared
// memory, at any byte and in both ways, without a pause and without a byte on TCP that the
// program did not write.
//
// A direction has a writer and a reader, in two processes. They share one Gate, a word in
// shared memory. The writer counts in it what it has sent over TCP. The reader consents to a
// move; the writer moves with a compare-and-swap against that consent, and from then on
// puts its bytes into the ring. The reader takes what was sent over TCP, then the ring.
//
// To come home, the reader recalls the direction: it takes nothing more from the ring. The
// writer then sends what the reader has left there over TCP, and continues on TCP. A gate is
// used for one move and one return; another move needs another gate.
//
// The package has no I/O: its callers own sockets, rings and wake-ups. model_test.go checks the
// protocol exhaustively over these functions, and has it as pseudocode.
package gate

import "sync/atomic"

// Word is the value of a Gate: three bits and the writer's position in the TCP stream.
type Word uint64

const (
	// readerOut: the reader takes bytes from TCP alone, and may wait there. The writer must not
	// move; if it has moved, it must come home. The reader changes it.
	readerOut Word = 1 << iota
	// moved: the writer has put every byte since position Sent into the ring. It stays set. The
	// writer changes it.
	moved
	// writerOut: the writer sends over TCP and does not report it, because it has not joined, or
	// has come home, or will write nothing more. The writer changes it.
	writerOut

	shift   = 3
	initial = readerOut | writerOut
)

// Sent is the writer's position in the TCP stream, in bytes. It lags behind while the writer
// is in a system call, and is exact once the writer has moved.
func (w Word) Sent() uint64 { return uint64(w >> shift) }

// Moved reports whether the writer has moved to the ring.
func (w Word) Moved() bool { return w&moved != 0 }

// Recalled reports whether the writer has moved, and must send over TCP what the reader has
// left in the ring.
func (w Word) Recalled() bool { return w&(moved|readerOut) == moved|readerOut }

// Left reports whether the writer will put nothing more into the ring.
func (w Word) Left() bool { return w&writerOut != 0 }

// Asks reports whether Consent would change anything.
func (w Word) Asks() bool { return w&(readerOut|writerOut) == readerOut }

// A Gate is one direction's boundary. It lies in shared memory, so both ends must treat what
// they load as hostile: a wrong value may spoil this direction's bytes and nothing else. Its
// methods are safe for concurrent use by one writer and one reader.
type Gate struct{ word atomic.Uint64 }

// Init prepares a Gate. Until both ends know it, they use TCP as if there were none.
func (g *Gate) Init() { g.word.Store(uint64(initial)) }

// Load returns the current value.
func (g *Gate) Load() Word { return Word(g.word.Load()) }

// Join is called by the writer, once, with the number of bytes that it has sent over TCP.
func (g *Gate) Join(pos uint64) { g.word.Add(pos<<shift - uint64(writerOut)) }

// Published is called by the writer after it has sent n bytes over TCP. A reader that has
// consented may sleep, so the writer then wakes it.
func (g *Gate) Published(n int) { g.word.Add(uint64(n) << shift) }

// Move moves the writer, if the reader has consented, and reports whether it did.
func (g *Gate) Move() bool {
	for {
		w := g.word.Load()
		if Word(w)&readerOut != 0 {
			return false
		}
		if g.word.CompareAndSwap(w, w|uint64(moved)) {
			return true
		}
	}
}

// Leave is called by a writer that sends over TCP from now on, or nothing at all, and has
// nothing to send again. It fails if the reader has recalled the direction: the writer then sends the
// rest of the ring, and calls Home. The writer wakes the reader after either.
func (g *Gate) Leave() bool {
	for {
		w := g.word.Load()
		if Word(w).Recalled() {
			return false
		}
		if g.word.CompareAndSwap(w, w|uint64(writerOut)) {
			return true
		}
	}
}

// Home is called by a writer that was recalled, after it has sent over TCP all that the reader has
// left in the ring.
func (g *Gate) Home() { g.word.Or(uint64(writerOut)) }

// Consent allows a writer that has joined to move. From then on, the reader looks at the gate
// before it waits on TCP. It withdraws its consent only by Recall.
func (g *Gate) Consent() {
	if g.Load().Asks() {
		g.word.And(^uint64(readerOut))
	}
}

// Recall is called by a reader that takes bytes from TCP alone from now on. The result says
// what it finds there.
func (g *Gate) Recall() Recalled {
	switch w := Word(g.word.Or(uint64(readerOut))); {
	case w&moved == 0:
		return Unmoved
	case w&writerOut == 0:
		return Returning
	}
	return Ended
}

// Recalled is the result of Recall.
type Recalled int

const (
	// Unmoved: the writer cannot move any more. All is on TCP.
	Unmoved Recalled = iota
	// Returning: TCP has the bytes up to Sent, then those of the ring from the reader's position on. If
	// TCP ends before these are complete, the reader takes the rest from the ring.
	Returning
	// Ended: the writer has put its last byte into the ring. The reader goes on as if it had not
	// recalled the direction.
	Ended
)

// Next is what a reader does after it has found nothing on TCP.
type Next int

const (
	// Wait on TCP: bytes, or an end, are on their way.
	Wait Next = iota
	// Enter the ring: TCP has no more bytes before it.
	Enter
	// Ask: the reader may call Consent, and look again.
	Ask
	// Park: the reader has consented, and waits to be woken. Before it sleeps it looks at
	// the gate again.
	Park
)

// Empty decides what a reader does that has read pos bytes from TCP, and then found no more
// there. The word must have been loaded after that.
func (w Word) Empty(pos uint64) Next {
	switch {
	case w&moved != 0 && pos >= w.Sent():
		return Enter
	case w&moved != 0 || pos < w.Sent():
		return Wait
	case w&writerOut != 0: // it cannot move: it has left, or the reader has not consented
		return Wait
	case w&readerOut != 0:
		return Ask
	}
	return Park
}
