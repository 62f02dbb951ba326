// Package sdp implements the Sockets Direct Protocol (SDP): stream connections that carry
// their bytes by RDMA if both ends can, and are plain TCP otherwise.
//
// [Dial] and [Listen] replace [net.Dial] and [net.Listen]:
//
//	ln, err := sdp.Listen("tcp", ":8080") // serves clients with and without SDP
//	...
//	conn, err := sdp.Dial("tcp", "localhost:8080")
//
// [Dialer] and [ListenConfig] do the same with a context and a [Config]. [NewListener],
// [Client] and [Server] work on a listener or a connection that the program already has.
//
// # Networks
//
// On networks "tcp", "tcp4", "tcp6" and "unix", a peer that does not speak SDP gets the
// connection that package net would have made. On networks "sdp", "sdp4" and "sdp6", which
// are TCP networks too, such a peer is an error. Names, addresses and ports are those of TCP.
//
// # Devices
//
// A device carries the bytes of an SDP connection. The two ends choose the best one that both
// have:
//
//   - "shm" is memory that two programs on one Linux host share.
//   - "verbs" is RDMA hardware, in programs that import
//     github.com/gosdp/gosdp/rdma/verbs.
//   - "iwarp" is RDMA in software over the TCP connection. Every program has it, and uses it
//     only if the program or its user asks for it, because it is slower than TCP for small
//     messages and set-up.
//
// [Config] restricts the choice. [Conn.Device] returns the result, and [Conn.Stats] the
// reasons.
//
// A Write is copied into messages, for which the peer has promised buffers. A long Write is
// transferred by RDMA without a copy where that is faster, or if Config.ZCopyThreshold is set.
//
// # Errors and security
//
// Every error of a connection or a listener is a [*net.OpError] that wraps net.ErrClosed,
// os.ErrDeadlineExceeded, syscall.ECONNRESET, syscall.EPIPE or another cause, except io.EOF,
// which is returned as it is. As with TCP there is no encryption and no authentication. Package
// crypto/tls works over a [Conn] as over any other connection.
package sdp
