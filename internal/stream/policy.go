package stream

import (
	"errors"
	"net/netip"

	"github.com/gosdp/gosdp/internal/trigger"
)

// Policy says whether and when connections move. One serves many connections; its functions are called concurrently.
type Policy struct {
	// Sandboxed reports why this process should make no system calls for a meeting: the program has set itself a sandbox.
	// Nil: it never has.
	Sandboxed func() error
	// Admit reports why this process should not share memory for another connection now: a limit is near. Nil: it always may.
	Admit func() error
	// Take asks for memory, for a segment or for bytes that the peer has not read, and Give returns it. A connection that
	// gets none stays on TCP or comes home. Nil: there is no limit.
	Take func(bytes int) bool
	Give func(bytes int)
	// Allow reports whether a process of another user may share memory with this one. Nil: none.
	Allow func(uid uint32) bool
	// At returns the score at which a connection moves; see trigger.Memory. Nil: trigger.Pays.
	At func(dialled bool, acceptor netip.AddrPort) int
	// Learn is told what a connection shows about its address. Nil: nobody wants to know.
	Learn func(dialled bool, acceptor netip.AddrPort, lesson trigger.Lesson)
	// Dir is a directory in which programs of different network namespaces meet, or "".
	Dir string
	// Restless makes connections move as soon as they can, and come home every few calls at random, for tests.
	Restless bool
}

var errNoPolicy = errors.New("shared memory is not enabled for the connection")
