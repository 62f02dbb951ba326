// Package iwarp is a software RNIC: RDMAP over DDP over MPA (RFC 5040, RFC 5041, RFC 5044, RFC
// 6581) on an ordinary TCP connection. It is compatible on the wire with iWARP hardware and with
// Linux's siw. Package mpa has what of this is MPA, without I/O.
//
// [Connect] and [ReadRequest] negotiate MPA on a connection that the caller has made, and return
// a [QueuePair]. It needs no privilege and works on every operating system. On Linux it works on
// the socket itself, without blocking, and needs no goroutine. Elsewhere, and over a net.Conn
// that is not a kernel's socket, one goroutine writes.
package iwarp
