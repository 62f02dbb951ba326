// Package meeting brings the two ends of a TCP connection within one network namespace together, so
// that they can share memory. It does so in steps that never wait, which the calls of the program take that
// uses the connection; there is no goroutine, no table of connections, and nothing on the connection itself.
//
//	dialler                                       acceptor
//	Invite: binds an abstract Unix socket
//	  whose name is the four-tuple, and listens
//	                                              Seek: connects to that name; checks the
//	                                                peer's user; says hello
//	Step: accepts; checks the user; checks the
//	  hello; makes the memory; says hello
//	  with its descriptor
//	                                              Step: checks the hello; maps the memory
//
// The Unix socket is the doorbell from then on. Most attempts of an acceptor find no such name, which
// costs some 2 µs.
//
// An end accepts a peer that runs as its own user or as one that it allows, and descriptors only after
// that. A process of such a user is trusted not to lie, as where ptrace is allowed. What the checks exclude is a
// mistake: an address that was used again, a relay, address translation. Both sockets must be plain TCP of
// the same network namespace. A hello has the process numbers of both ends as its sender sees them, which
// must be those that the receiver sees, and a keyed hash of the first bytes that its sender has read, which must
// be those that the receiver has written.
package meeting
