package sdp

import (
	"sync/atomic"

	"github.com/gosdp/gosdp/internal/session"
	"github.com/gosdp/gosdp/rdma"
)

const (
	smallWrite  = 8 << 10 // bytes; longer Writes are messages of their own
	appendAfter = 4       // small Writes in succession
)

// appends lets successive small Writes share a message, if the device can append to a
// message that the peer has not taken yet. The peer then takes many Writes at once, and
// needs one buffer for all of them. Such a message costs the peer a little more, so the
// first Writes after a Read, which may be requests, are complete messages.
//
// A Write that is appended takes no lock of the connection. Everything that forbids Writes
// calls stop. A Write that saw open just before appends to a message that was posted
// earlier, or not at all: the device appends only to its last message, and only the last
// message of a Write may grow. So the bytes of two Writes do not mix, and nothing follows a
// DisConn. Nothing is appended in a Write that is advertised, nor on a connection that may
// enter Pipelined mode (session.Growth).
//
// All methods except try must be called with conn.mu held.
type appends struct {
	device rdma.Appender // nil: the device cannot append
	more   bool          // another part of the same call follows; guarded by writeMu
	small  int8          // small Writes since the last Read or longer Write, at most appendAfter
	open   atomic.Bool   // small Writes may try to append
}

// try appends b to the last message, and reports whether it did.
func (a *appends) try(b []byte) bool {
	return len(b) <= smallWrite && a.open.Load() && (!mapped(b) || whole(b)) && a.device.Append(b)
}

// count counts a Write of n bytes. The caller must also hold writeMu.
func (a *appends) count(n int) {
	switch {
	case n > smallWrite:
		a.small = 0
	case a.small < appendAfter:
		a.small++
	}
}

// growth returns how long the message that is about to be posted may become, 0 if nothing
// may be appended to it, and lets Writes try: theirs must not come between two parts of one call.
// The caller must also hold writeMu.
func (a *appends) growth(s *session.Session) int {
	most := s.Growth()
	if a.small < appendAfter || most == 0 || a.more {
		return 0
	}
	if !a.open.Load() {
		a.open.Store(true)
	}
	return most
}

// stop makes the next Write check the connection's state.
func (a *appends) stop() {
	a.small = 0
	if a.open.Load() {
		a.open.Store(false)
	}
}
