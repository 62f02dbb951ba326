package parity

// known lists the known differences from package net, with reasons. A difference that no
// longer occurs fails the test, and so does one that is not listed.
var known = []difference{

	{"the peer is killed with unread bytes of ours", "iwarp", "Read: EOF", takenOut},
}

const (
	takenOut = "The peer's library had already read the bytes from the kernel, so its kernel ends the connection without a reset. " +
		"In \"a stopped peer is killed with unread bytes of ours\" it had not read them."
)
