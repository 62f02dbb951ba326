// Package localpeer lets the two ends of a connection on one host recognise each other
// before a byte is written.
//
// TCP: a listener and a dialler of SDP mark their sockets with IP options that mean nothing to
// a TCP connection and never reach the wire. The kernel copies a listener's options to the
// connections that it accepts, and tells any process about the other end of a connection of
// its network namespace (sock_diag(7), by the four-tuple). So each end knows at once whether
// the other one speaks SDP, even if ports are shared, reused or forwarded.
//
// Unix sockets: a listener of SDP holds an abstract socket whose name is derived from that of
// the listening socket. A dialler that finds it binds its own end to a name that the listener
// recognises.
//
// A mark is a hint and no proof: any program can set the same options or use such names, and
// a socket that is passed to another program keeps its mark. Then a negotiation fails.
package localpeer

import (
	"crypto/rand"
	"errors"
	"io"
	"net"
	"strings"
	"syscall"
)

// Role is the meaning of a mark.
type Role uint8

// The roles.
const (
	// Listener: the socket accepts SDP, and so do the connections that were accepted from it.
	Listener Role = iota
	// Dialler: the socket will send a Request if the other end is marked as a Listener.
	Dialler
)

// End is what the kernel reports about the other end of a connection.
type End struct {
	// Listener and Dialler report the marks.
	Listener, Dialler bool
	// UID is the user whose process created the socket, if Owned. A connection that has not
	// been accepted yet has no owner.
	UID   uint32
	Owned bool
}

var (
	// ErrElsewhere: the other end is not in this network namespace.
	ErrElsewhere = errors.New("peer is not on this host")
	// ErrBlind: this process may not ask the kernel, or the system has no such call.
	ErrBlind = errors.New("kernel does not show the peer's socket")
)

// Mark marks the socket. It fails if the kernel does not support the options on this kind of
// socket.
func Mark(c syscall.RawConn, r Role) error { return set(c, r, true) }

// Unmark removes the mark.
func Unmark(c syscall.RawConn, r Role) error { return set(c, r, false) }

// MarksMultipath reports whether listeners of multipath TCP can be marked. It is safe for concurrent
// use.
func MarksMultipath() bool { return marksMultipath() }

// Other returns what the kernel reports about the other end of c, a TCP connection. If that is
// gone, the error is ErrElsewhere, and the marks are those of the listener at its address.
// Other takes about 3 µs, and a millisecond at most. Errors are ErrElsewhere and ErrBlind.
// It is safe for concurrent use.
func Other(c net.Conn) (End, error) { return other(c) }

// Own returns what the other end of c would see: the mark of c itself, or ErrElsewhere if the
// other end does not find c. Otherwise it is like Other.
func Own(c net.Conn) (End, error) { return own(c) }

// Marked reports whether a socket has the mark of the role. It is safe for concurrent use.
func Marked(c syscall.RawConn, r Role) bool { return marked(c, r) }

// Shows reports whether the other end of c, if it asks, sees that c has the role. It is what
// Own reports, but does not need to ask the kernel's diagnostics. It is safe for concurrent use.
func Shows(c net.Conn, r Role) bool { return shows(c, r) }

// Sees reports whether Other works for connections that are accepted from a listener: this
// process may ask the kernel, in the network namespace of the listener. It is safe for concurrent
// use.
func Sees(listener syscall.RawConn) bool { return sees(listener) }

// Sighted reports whether this process may ask the kernel. It is safe for concurrent use.
func Sighted() bool { return sighted() }

// unixDialler is the prefix of the names that diallers bind their Unix sockets to.
const unixDialler = "@gosdp-dialler-"

// UnixDialler returns an address for a dialler's end of a Unix socket that marks it.
func UnixDialler() *net.UnixAddr {
	return &net.UnixAddr{Net: "unix", Name: unixDialler + rand.Text()}
}

// IsUnixDialler reports whether a is such an address.
func IsUnixDialler(a *net.UnixAddr) bool { return strings.HasPrefix(a.Name, unixDialler) }

// AnnounceUnix announces that SDP is served on the Unix socket with that address, until the
// Closer is closed.
func AnnounceUnix(a *net.UnixAddr) (io.Closer, error) { return announceUnix(a) }

// ListensUnix reports whether this process has made the Unix socket listen. A dialler takes the
// process that did so for the server (UnixServer), also after it has passed the socket on.
func ListensUnix(listener syscall.RawConn) bool { return listensUnix(listener) }

// UnixAnnouncer returns the process that announces that it serves SDP on the Unix socket with
// that address; 0: none does. The caller must check that this process serves the socket.
func UnixAnnouncer(a *net.UnixAddr) (pid int) { return unixAnnouncer(a) }

// UnixServer returns the process that listens at the other end of c; 0: unknown.
func UnixServer(c *net.UnixConn) (pid int) { return unixServer(c) }
