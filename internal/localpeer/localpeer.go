// Package localpeer lets the two ends of a connection on one host recognise each other
// before a byte is written.
//
// TCP: a listener and a dialler of SDP mark their sockets, with IP options that mean nothing
// to a TCP connection and that never reach the wire. The kernel passes a listener's
// options on to the connections that it accepts, and tells any process about the other
// end of a connection of its network namespace (sock_diag(7), by the four-tuple). So
// each end knows from the first moment on whether the other one speaks SDP, also if
// ports are shared, used again or forwarded.
//
// Unix sockets: a listener of SDP holds an abstract socket whose name is made of the
// listening socket's, and a dialler that finds it there binds its own end to a name that
// the listener sees.
//
// All of that is a hint and no proof: any program may set the same options or take such
// names, and a socket that is handed to another program keeps its mark. What it leads to
// is a negotiation that fails.
package localpeer

import (
	"crypto/rand"
	"errors"
	"io"
	"net"
	"strings"
	"syscall"
)

// Role is what a mark says of a socket.
type Role uint8

// The roles.
const (
	// Listener: accepts SDP, and so do the connections that were accepted from it.
	Listener Role = iota
	// Dialler: will send a Request if the other end is marked as a Listener.
	Dialler
)

// End is what the kernel says of the other end of a connection.
type End struct {
	// Listener and Dialler report the marks.
	Listener, Dialler bool
	// UID is the user whose process created the socket, if Owned. The end of a
	// connection that was not accepted yet is nobody's.
	UID   uint32
	Owned bool
}

var (
	// ErrElsewhere: the other end is not in this network namespace.
	ErrElsewhere = errors.New("the other end is not on this host")
	// ErrBlind: this process may not ask the kernel, or this system has no such call.
	ErrBlind = errors.New("the kernel does not tell about the other end")
)

// Mark marks the socket. It fails where the kernel does not know the options for this
// kind of socket.
func Mark(c syscall.RawConn, r Role) error { return set(c, r, true) }

// Unmark removes the mark.
func Unmark(c syscall.RawConn, r Role) error { return set(c, r, false) }

// MarksMultipath reports that listeners of multipath TCP can be marked. Safe for
// concurrent use.
func MarksMultipath() bool { return marksMultipath() }

// Other returns what the kernel says of the other end of c, whose addresses are those of
// TCP. If that is gone, with ErrElsewhere, the marks are those of the listener that is
// there. It takes some 3 µs, and a millisecond at most. Errors are ErrElsewhere and
// ErrBlind. Safe for concurrent use.
func Other(c net.Conn) (End, error) { return other(c) }

// Own returns what the other end of c sees if it asks: the mark that c itself has, if it
// took, and ErrElsewhere if the other end does not find c. The rest is as with Other.
func Own(c net.Conn) (End, error) { return own(c) }

// Shows reports whether the other end of c, if it asks, sees that c has the role. It is what
// Own reports, but does not need to ask the kernel's diagnostics. Safe for concurrent use.
func Shows(c net.Conn, r Role) bool { return shows(c, r) }

// Sees reports that the other ends of the connections that are accepted from a listener can
// be asked for: this process can ask, in the listener's network namespace. Safe for
// concurrent use.
func Sees(listener syscall.RawConn) bool { return sees(listener) }

// Sighted reports that Other can be asked at all. Safe for concurrent use.
func Sighted() bool { return sighted() }

// unixDialler is what the names begin with that diallers bind their Unix sockets to.
const unixDialler = "@gosdp-dialler-"

// UnixDialler returns the address for a dialler's end of a Unix socket that marks it.
func UnixDialler() *net.UnixAddr {
	return &net.UnixAddr{Net: "unix", Name: unixDialler + rand.Text()}
}

// IsUnixDialler reports that a is such an address.
func IsUnixDialler(a *net.UnixAddr) bool { return strings.HasPrefix(a.Name, unixDialler) }

// AnnounceUnix tells diallers that SDP is served on the Unix socket with that address,
// until the Closer is closed.
func AnnounceUnix(a *net.UnixAddr) (io.Closer, error) { return announceUnix(a) }

// UnixAnnouncer returns the process that says that it serves SDP on the Unix socket with
// that address; 0: none does. It is for the caller to see that it is the process which
// serves that socket.
func UnixAnnouncer(a *net.UnixAddr) (pid int) { return unixAnnouncer(a) }

// UnixServer returns the process that listens at the other end of c; 0: it is not known.
func UnixServer(c *net.UnixConn) (pid int) { return unixServer(c) }
