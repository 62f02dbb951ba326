package parity

// known are the differences from package net that have a reason. A difference
// that no longer occurs fails the test, as one does that is not listed.
var known = []difference{
	{"every call after a reset", "shm", "second Read: read ECONNRESET", resetStays},
	{"every call after a reset", "shm", "Write: write ECONNRESET", resetStays},
	{"every call after a reset", "iwarp", "second Read: read ECONNRESET", resetStays},
	{"every call after a reset", "iwarp", "Write: write ECONNRESET", resetStays},
	{"the peer is killed with unread bytes of ours", "shm", "a later Write: write ECONNRESET", resetStays},
	{"the peer is killed on a full connection", "shm", "a later Write: write ECONNRESET", resetStays},

	{"the peer is killed with unread bytes of ours", "iwarp", "Read: EOF at once", takenOut},
	{"the peer is killed on a full connection", "iwarp", "Read: EOF at once", takenOut},
	{"the peer is killed while we write", "iwarp", "Write: write EPIPE at once", takenOut},
}

const (
	resetStays = "A reset is reported by every later call. TCP reports it once, and then an end or a broken pipe."
	takenOut   = "The peer's library had taken the bytes out of the kernel, so its kernel ends the connection without a reset. " +
		"\"a stopped peer is killed with unread bytes of ours\" is the case in which it had not."
)
