// Package meeting brings the two ends of a TCP connection on one host together, so that they can share
// memory. It does so in steps that never wait, which the calls of the program take that uses the
// connection; there is no goroutine, no table of connections, and nothing on the connection itself.
//
//	dialler                                       acceptor
//	Invite: binds a Unix socket, and listens
//	                                              Seek: connects to that; checks the
//	                                                peer's user; says hello
//	Step: accepts; checks the user; checks the
//	  hello; makes the memory; says hello
//	  with its descriptor
//	                                              Step: checks the hello; maps the memory
//
// The Unix socket is the doorbell from then on. Most attempts of an acceptor find no socket, which
// costs some 2 µs.
//
// In one network namespace the socket's name is abstract, and has the four addresses of the connection. Ends whose
// addresses differ may be in two namespaces. They meet in a directory that both have mounted, if there is one. There the
// socket is named by the dialler's address, which destination NAT keeps. It is removed when the ends have met,
// or the dialler has given up. What a killed process leaves is removed by an acceptor that finds it, by the
// next dialler that has its name, or by another one, which looks through the directory every 10 s at most.
//
// An end accepts a peer that runs as its own user or as one that it allows, and descriptors only after
// that. A process of such a user is trusted not to lie, as where ptrace is allowed. What the checks exclude is a
// mistake: an address that was used again, or that two networks have, a relay, address translation. Both sockets must be
// plain TCP, and that of a connection with an abstract name of the same network namespace. Each end says:
//
//   - the process numbers of both ends as it sees them, which must be those that the other end sees, if both have the same
//     numbers;
//   - the kernel's counts: nothing can have arrived that the other end has not written, nor have been acknowledged that has
//     not arrived there;
//   - a keyed hash of the first bytes that it has read, which must be those that the other end has written;
//   - in a directory, when it has read and written first: nothing can have been read before it was written. A proof there
//     must cover 16 bytes and eight calls of each end, or the ends do not meet yet.
package meeting
