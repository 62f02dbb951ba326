// Package stream is a TCP connection whose directions may move to shared memory and come home.
//
// A [Conn] begins on its TCP socket, and counts the bytes that its calls move. [Conn.Attach] gives it
// a segment that both ends have. From then on, each direction follows the gate's protocol (package
// gate, whose model test has it as pseudocode): Writes move to the ring when the peer's Reads have
// consented, and come home when either end calls [Conn.Leave]. When both directions are on TCP again,
// the segment is unmapped and the doorbell closed, and another one may be attached.
//
// A connection with a [Policy] moves by itself: its calls count what they do, and take the steps of a meeting (packages
// trigger and meeting) when a move pays. [Conn.Meet] does the same at once. What the calls of an idle connection would do,
// the monitor does: it visits connections that have a meeting or a segment, and young accepted ones whose peer may be
// in Meet. A connection that is home has no descriptor, goroutine or memory of its own but its TCP socket.
//
// Locks: a Read holds rmu, a Write wmu, for as long as it takes; a direction's half of the link belongs to
// the holder. A call that waits on TCP lends its half to visits, which take it with a compare-and-swap of
// the half's place. Conn.mu and the doorbell's lock are taken last. Close takes wmu, then rmu,
// after it has woken their holders. A function whose name ends in Locked must be called with the lock that its
// comment names, and does not release it.
package stream
