// Package restart has the test that a server is replaced by another process while its connections are in use,
// by [sdp.Conn.File] in the one and [sdp.FileConn] in the other.
package restart
