// Package iwarp is a software RNIC: RDMAP over DDP over MPA (RFC 5040, RFC 5041,
// RFC 5044, RFC 6581) on an ordinary TCP connection, compatible on the wire with
// iWARP hardware and with Linux's siw.
//
// [Connect] and [ReadRequest] negotiate MPA on a connection that the caller has
// made, and give a [QueuePair]. It needs no thread and no privilege, and works on
// every operating system. On Linux it works the socket itself, without blocking, and
// needs no goroutine; elsewhere, or over a net.Conn that is no kernel's socket, it has
// one that writes.
package iwarp
