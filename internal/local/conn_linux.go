package local

import (
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/gosdp/gosdp/internal/bubble"
	"github.com/gosdp/gosdp/internal/dump"
	"github.com/gosdp/gosdp/internal/netname"
	"github.com/gosdp/gosdp/internal/observe"
	"github.com/gosdp/gosdp/internal/policy"
	"github.com/gosdp/gosdp/internal/rules"
	"github.com/gosdp/gosdp/internal/stream"
	"github.com/gosdp/gosdp/sdp/stats"
)

// Conn is a connection between two programs of one host: on TCP or in shared memory.
type Conn struct {
	stream.Conn
	recorded observe.Record
	dump     atomic.Pointer[dump.Stream]
	network  netname.ID
	ended    atomic.Bool // Close was called
}

// New returns a connection on tcp, which moves as moves says. network is the name of the network that the program
// used. The caller calls Open before the program gets it.
func New(tcp *net.TCPConn, moves Moves, network netname.ID, dialled bool) *Conn {
	l := &Conn{network: network}
	l.Init(tcp)
	l.move(dialled, moves)
	return l
}

// Continue is New for a connection that another process has begun, and that this end has accepted.
func Continue(tcp *net.TCPConn, moves Moves, network netname.ID) *Conn {
	l := &Conn{network: network}
	l.Inherit(tcp)
	l.move(false, moves)
	return l
}

func (l *Conn) move(dialled bool, moves Moves) {
	if !bubble.Inside() { // what moves a connection outlives the test of a bubble
		filters()
		l.Move(dialled, moves.Policy)
	}
}

// Open makes the connection one of those that are open. Its events go to log; nil: nowhere.
func (l *Conn) Open(dialled bool, log *slog.Logger) { observe.Opened(l, dialled, log) }

// name gives an error, and one of this connection that it wraps, the name of the network that the program used.
func (l *Conn) name(err error) error {
	if l.network == netname.Unnamed {
		return err
	}
	for e := err; ; {
		op, ok := e.(*net.OpError)
		if !ok || e != err && op.Source != l.LocalAddr() {
			return err
		}
		op.Net = l.network.String()
		e = op.Err
	}
}

// Read implements the net.Conn Read method.
func (l *Conn) Read(b []byte) (int, error) {
	n, err := l.Conn.Read(b)
	if err != nil || l.dump.Load() != nil {
		err = l.hasRead(b[:max(0, n)], err)
	}
	return n, err
}

// hasRead is apart, so that the frame of a Read that waits is small: a goroutine's first stack should do.
//
//go:noinline
func (l *Conn) hasRead(b []byte, err error) error {
	if s := l.dump.Load(); s != nil {
		observe.DumpRead(s, b, netname.Cause(err))
	}
	return l.name(err)
}

// Write implements the net.Conn Write method.
func (l *Conn) Write(b []byte) (n int, err error) {
	if s := l.dump.Load(); s != nil {
		n, err = l.writeDumped(s, b)
	} else {
		n, err = l.Conn.Write(b)
	}
	if err != nil {
		err = l.name(err)
	}
	return n, err
}

// writeDumped is apart, so that the frame of a Write without a dump is small: a goroutine's first stack should do.
func (l *Conn) writeDumped(s *dump.Stream, b []byte) (n int, err error) {
	s.Sent(b)
	defer func() { s.NotSent(len(b) - n) }()
	return l.Conn.Write(b)
}

func (l *Conn) ReadFrom(r io.Reader) (n int64, err error) {
	if l.dump.Load() != nil {
		n, err = io.Copy(onlyWriter{l}, r)
	} else {
		n, err = l.Conn.ReadFrom(r)
	}
	return n, l.name(err)
}

func (l *Conn) WriteTo(w io.Writer) (n int64, err error) {
	if l.dump.Load() != nil {
		n, err = io.Copy(w, onlyReader{l})
	} else {
		n, err = l.Conn.WriteTo(w)
	}
	return n, l.name(err)
}

func (l *Conn) WriteBuffers(v *net.Buffers) (n int64, err error) {
	if l.dump.Load() != nil {
		n, err = v.WriteTo(onlyWriter{l})
	} else {
		n, err = l.Conn.WriteBuffers(v)
	}
	return n, l.name(err)
}

type onlyWriter struct{ io.Writer }

type onlyReader struct{ io.Reader }

func (l *Conn) Close() error {
	if l.ended.Swap(true) {
		return l.name(l.Conn.Close())
	}
	if s := l.dump.Load(); s != nil {
		s.EndSent()
	}
	err := l.Conn.Close()
	violation := l.Violation()
	observe.Ended(l, violation != nil, violation)
	l.logStayed()
	return l.name(err)
}

// logStayed writes to the log that the operator's file has configured that the connection has ended without
// having used shared memory, and why.
func (l *Conn) logStayed() {
	if !policy.Logs(rules.LevelSummary) {
		return
	}
	if why := l.Stats().Stayed(); why != "" {
		policy.Log(rules.LevelSummary, fmt.Sprintf("close %v to %v: stayed on TCP: %s", l.LocalAddr(), l.RemoteAddr(), why))
	}
}

func (l *Conn) CloseWrite() error {
	err := l.Conn.CloseWrite()
	if s := l.dump.Load(); s != nil && err == nil {
		s.EndSent()
	}
	return l.name(err)
}

func (l *Conn) CloseRead() error                   { return l.name(l.Conn.CloseRead()) }
func (l *Conn) SetDeadline(t time.Time) error      { return l.name(l.Conn.SetDeadline(t)) }
func (l *Conn) SetReadDeadline(t time.Time) error  { return l.name(l.Conn.SetReadDeadline(t)) }
func (l *Conn) SetWriteDeadline(t time.Time) error { return l.name(l.Conn.SetWriteDeadline(t)) }
func (l *Conn) SetLinger(sec int) error            { return l.name(l.Conn.SetLinger(sec)) }
func (l *Conn) SetKeepAlive(on bool) error         { return l.name(l.Conn.SetKeepAlive(on)) }
func (l *Conn) SetNoDelay(on bool) error           { return l.name(l.Conn.SetNoDelay(on)) }
func (l *Conn) SetReadBuffer(bytes int) error      { return l.name(l.Conn.SetReadBuffer(bytes)) }
func (l *Conn) SetWriteBuffer(bytes int) error     { return l.name(l.Conn.SetWriteBuffer(bytes)) }
func (l *Conn) SetKeepAlivePeriod(d time.Duration) error {
	return l.name(l.Conn.SetKeepAlivePeriod(d))
}
func (l *Conn) SetKeepAliveConfig(c net.KeepAliveConfig) error {
	return l.name(l.Conn.SetKeepAliveConfig(c))
}

func (l *Conn) File() (*os.File, error) {
	f, err := l.Conn.File()
	return f, l.name(err)
}

func (l *Conn) SyscallConn() (syscall.RawConn, error) {
	raw, err := l.Conn.SyscallConn()
	if err != nil {
		return nil, l.name(err)
	}
	return &rawLocal{raw, l}, nil
}

// rawLocal is what SyscallConn returns.
type rawLocal struct {
	raw syscall.RawConn
	l   *Conn
}

func (r *rawLocal) Control(f func(fd uintptr)) error { return r.l.name(r.raw.Control(f)) }

func (r *rawLocal) Read(f func(fd uintptr) (done bool)) error { return r.l.name(r.raw.Read(f)) }

func (r *rawLocal) Write(f func(fd uintptr) (done bool)) error { return r.l.name(r.raw.Write(f)) }

// Record returns the connection's place in the table of open connections.
func (l *Conn) Record() *observe.Record { return &l.recorded }

// Dumped has the dump's stream.
func (l *Conn) Dumped() *atomic.Pointer[dump.Stream] { return &l.dump }

// Stats returns the connection's statistics.
func (l *Conn) Stats() stats.Conn {
	s := stats.Conn{Device: l.Device(), Unread: l.Unread()}
	if why := l.Why(); why != nil {
		s.OnTCP = why.Error()
	}
	s.ShmReceived, s.ShmSent = l.Rings()
	read, written := l.Totals()
	s.TCPReceived, s.TCPSent = read-s.ShmReceived, written-s.ShmSent
	s.Moves = l.Moves()
	return s
}

// Describe fills in what the Record does not have.
func (l *Conn) Describe(info *stats.OpenConn) {
	info.Conn, info.Closing = l.Stats(), l.ended.Load()
}
