// Package sdp is the Sockets Direct Protocol: connections and listeners as those of
// package net, whose bytes go by RDMA where both ends can.
//
// [Dial] and [Listen] stand for [net.Dial] and [net.Listen]. On network "tcp" a peer
// that does not speak SDP gets the plain TCP connection that it expects; on "sdp" that
// is an error. A [*Conn] is a net.Conn with the methods of net.TCPConn. Writes
// are copied into messages (buffer copy), or, where the device gains by it or
// [Config.ZCopyThreshold] says so, the bytes of long ones are fetched or placed by
// RDMA, without a copy (zero copy); and no end sends what the other has no buffers for
// (credits).
//
// What carries the bytes is a device, chosen for each connection among those that both
// ends have: "shm", memory that two programs of one Linux host share; "verbs", RDMA
// hardware, in programs that import github.com/gosdp/gosdp/rdma/verbs; and "iwarp",
// RDMA in software over the TCP connection, which is everywhere. [Config] narrows the
// choice, and [Conn.Device] and [Conn.Stats] say what came of it.
//
// Addresses, names, ports and deadlines are those of TCP. So are the errors: a
// [*net.OpError] around net.ErrClosed, os.ErrDeadlineExceeded, syscall.ECONNRESET or
// syscall.EPIPE, and a bare io.EOF. There is no encryption and no authentication, as
// in TCP: package crypto/tls works over a Conn as over any other.
package sdp
