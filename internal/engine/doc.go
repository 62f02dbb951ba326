// Package engine is the connection of SDP over RDMA: a [Conn] over a connected queue pair, which the
// handshake has made. It knows neither how connections come up nor who may have them. The Session
// (package session) decides what to send and what a received message means; the Conn drives it with
// locks, polling, deadlines and Close.
//
// A Write is in write.go and send.go, or direct_write.go if it is not copied. A message from the
// peer passes through poll.go, messages.go and promise.go (credit) to a Read in read.go or
// direct_read.go. close.go and linger.go end the connection. state.go has its states.
//
// The locks, from the outermost to the innermost, as package lockorder checks. Each may be taken
// without the ones before it:
//
//   - Conn.writeMu and readMu serialise Writes and Reads, each for the whole call, so that the
//     bytes of two calls do not mix.
//   - sender.mu, of Conn.out, guards the order of messages.
//   - Conn.mu guards the state of the connection. It is never held across a call that could block,
//     into the device or into a TCP connection of the program's own type.
//   - monitor.mu guards the list of the idle monitor.
//
// A function whose name ends in Locked must be called with Conn.mu held, and does not release it.
// One whose name ends in Releasing must be called with Conn.mu held too, but releases it in between
// and returns with it held: what its caller knew may not hold any more. One that ends in AndUnlock
// returns without it. The methods of types that say "guarded by Conn.mu" and never release it, such
// as promise, phase and deadline, do without a suffix.
package engine
