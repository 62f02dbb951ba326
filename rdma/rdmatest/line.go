package rdmatest

import (
	"encoding/gob"
	"net"
	"testing"
	"time"
)

// Line is what the two roles of a scene use to communicate beside the channel under test: where a
// channel can be opened, what is registered, how far they are. It belongs to one goroutine at each
// end.
type Line struct {
	t    *testing.T
	conn net.Conn
	out  *gob.Encoder
	in   *gob.Decoder
}

func newLine(t *testing.T, conn net.Conn) *Line {
	return &Line{t: t, conn: conn, out: gob.NewEncoder(conn), in: gob.NewDecoder(conn)}
}

// Say sends v, which encoding/gob can carry, to the other role, or fails the test.
func (l *Line) Say(v any) {
	l.t.Helper()
	if err := l.out.Encode(v); err != nil {
		l.t.Fatalf("the other role does not listen: %v", err)
	}
}

// Hear waits for what the other role says, and stores it in v, a pointer. It fails the test if the
// other role has failed or ended.
func (l *Line) Hear(v any) {
	l.t.Helper()
	must(l.t, l.conn.SetReadDeadline(time.Now().Add(patience/4)))
	if err := l.in.Decode(v); err != nil {
		l.t.Fatalf("the other role says nothing: %v", err)
	}
}

// Meet waits until the other role is in Meet too.
func (l *Line) Meet() {
	l.t.Helper()
	l.Say(true)
	var there bool
	l.Hear(&there)
}

// untilKilled waits for the end of this process, or of the other role.
func (l *Line) untilKilled() {
	_ = l.conn.SetReadDeadline(time.Time{})
	_ = l.in.Decode(new(bool))
}
