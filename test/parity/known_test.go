package parity

import "os"

// known lists the known differences from package net, with reasons. A difference that no
// longer occurs fails the test, and so does one that is not listed.
var known = []difference{
	{"the peer is killed with unread bytes of ours", "iwarp", "Read: EOF", takenOut},
}

func init() {
	if os.Getenv(moveVariable) != "at-once" {
		return
	}
	known = append(known,
		difference{"payload after both directions were closed with unread data", "shm", "the peer reads: too few bytes, read ECONNRESET", inRing},
		difference{"payload after both directions were closed with unread data", "shm", "the peer's Read: EOF", inRing},
		difference{"payload after both directions were closed with unread data", "shm", "a further Read of the peer: EOF", inRing},
		difference{"payload after both directions were closed with unread data, then a write", "shm", "the peer reads: too few bytes, EOF", inRing},
		difference{"payload after both directions were closed with unread data, then a write", "shm", "the peer's Read: EOF", inRing},
	)
}

const (
	inRing = "What is unread in the ring when the connection comes home goes through TCP. The kernel of an end that has closed both " +
		"directions answers it with a reset."
	takenOut = "The peer's library had already read the bytes from the kernel, so its kernel ends the connection without a reset. " +
		"In \"a stopped peer is killed with unread bytes of ours\" it had not read them."
)
