// Package sdp makes stream connections faster than TCP where both ends can. Between two programs
// of one host a connection begins as a TCP connection, moves to shared memory while that pays, and
// comes home to TCP. Over RDMA it implements the Sockets Direct Protocol (SDP).
//
// [Dial] and [Listen] replace [net.Dial] and [net.Listen]:
//
//	ln, err := sdp.Listen("tcp", ":8080") // serves clients with and without this library
//	...
//	conn, err := sdp.Dial("tcp", "localhost:8080")
//
// [Dialer] and [ListenConfig] do the same with a context and a [Config]. [NewListener],
// [Client] and [Server] work on a listener or a connection that the program already has.
//
// # Networks
//
// On networks "tcp", "tcp4" and "tcp6", Dial and Accept make the connection that package net
// would have made. They return it as a [*Conn] if both ends may be on this host, and otherwise as a
// [*net.TCPConn]. No byte is sent that the program has not written, unless SDP over RDMA was asked for by name
// ([Config.Devices], [Config.Probe]). A peer without this library never notices.
//
// On networks "sdp", "sdp4" and "sdp6", which are TCP networks too, the two ends meet in shared
// memory or agree on an RDMA device before Dial and Accept return, or Dial fails. Names, addresses and
// ports are those of TCP. Network "unix" is package net's.
//
// # What carries the bytes
//
//   - "tcp" is the TCP connection.
//   - "shm" is memory that two programs on one Linux host share. A connection moves there and comes
//     home, in each direction, at any byte. It needs one user at both ends, unless
//     [Config.PeerUIDs] allows others.
//   - "verbs" is RDMA hardware, in programs that import
//     github.com/gosdp/gosdp/rdma/verbs. It is experimental.
//   - "iwarp" is RDMA in software over the TCP connection. Every program has it, and uses it only if
//     that is asked for, because it is slower than TCP for small messages and set-up.
//
// [Config] restricts the choice. [Conn.Device] returns where the connection is now, and
// [Conn.Stats] why it is not elsewhere.
//
// # Errors and security
//
// Every error of a connection or a listener is a [*net.OpError] that wraps net.ErrClosed,
// os.ErrDeadlineExceeded, syscall.ECONNRESET, syscall.EPIPE or another cause, except io.EOF and that
// of [Listener.SetDeadline] after Close, which are returned as they are. As with TCP there is no encryption and no authentication. Package
// crypto/tls works over a [Conn] as over any other connection.
package sdp
