package sdp

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/gosdp/gosdp/internal/bubble"
	"github.com/gosdp/gosdp/internal/budget"
	"github.com/gosdp/gosdp/internal/dump"
	"github.com/gosdp/gosdp/internal/limits"
	"github.com/gosdp/gosdp/internal/meeting"
	"github.com/gosdp/gosdp/internal/netname"
	"github.com/gosdp/gosdp/internal/observe"
	"github.com/gosdp/gosdp/internal/policy"
	"github.com/gosdp/gosdp/internal/stream"
	"github.com/gosdp/gosdp/internal/timing"
	"github.com/gosdp/gosdp/internal/trigger"
	"github.com/gosdp/gosdp/sdp/stats"
	"golang.org/x/sys/unix"
)

// local is a connection between two programs of one host: on TCP or in shared memory.
type local struct {
	stream.Conn
	recorded observe.Record
	dump     atomic.Pointer[dump.Stream]
	network  netname.ID
	ended    atomic.Bool // Close was called
}

// Addresses learn whether connections live long enough to move at once; see package trigger.
var dials, accepts trigger.Memory[netip.AddrPort]

func memoryOf(dialled bool) *trigger.Memory[netip.AddrPort] {
	if dialled {
		return &dials
	}
	return &accepts
}

var defaultPolicy = sync.OnceValue(func() *stream.Policy {
	p := &stream.Policy{
		Sandboxed: sandboxed,
		Admit:     limits.Admit,
		Take:      budget.Process.TakeSpare,
		Give:      budget.Process.Give,
		At:        func(dialled bool, acceptor netip.AddrPort) int { return memoryOf(dialled).At(acceptor) },
		Learn: func(dialled bool, acceptor netip.AddrPort, lesson trigger.Lesson) {
			memoryOf(dialled).Learn(acceptor, lesson)
		},
	}
	switch policy.Getenv(policy.MoveVariable) {
	case "at-once":
		meeting.TestSelf = true
		p.At = func(bool, netip.AddrPort) int { return 1 }
		p.Learn = nil
	case "at-random":
		meeting.TestSelf = true
		p.Restless = true
	}
	return p
})

// filters is how many seccomp filters the process had when it made its first connection.
var filters = sync.OnceValues(limits.Filters)

// sandboxed returns an error if the program has installed a filter since.
func sandboxed() error {
	now, ok := limits.Filters()
	if before, _ := filters(); ok && now != before {
		return errFiltered
	}
	return nil
}

var errFiltered = errors.New("program has installed a seccomp filter since its first connection")

// relieve makes connections come home if the process has no descriptors left, and reports whether it has some now. Over TCP
// each connection would have one, and in shared memory it has two.
func relieve(ctx context.Context, err error) bool {
	if !errors.Is(err, unix.EMFILE) || bubble.Inside() {
		return false
	}
	before := stream.Sharing()
	if before == 0 { // segments of earlier connections may be kept
		return stream.LeaveAll(errDescriptors) > 0
	}
	for pause := time.Millisecond; pause < timing.Home; pause *= 2 { // the peers' part may take them a visit
		stream.LeaveAll(errDescriptors)
		if stream.Sharing() < before {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(pause):
		}
	}
	return false
}

var errDescriptors = errors.New("process has no file descriptors left; raise RLIMIT_NOFILE")

// name gives an error, and one of this connection that it wraps, the name of the network that the program used.
func (l *local) name(err error) error {
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

func (l *local) Read(b []byte) (int, error) {
	n, err := l.Conn.Read(b)
	if err != nil || l.dump.Load() != nil {
		err = l.hasRead(b[:max(0, n)], err)
	}
	return n, err
}

// hasRead is apart, so that the frame of a Read that waits is small: a goroutine's first stack should do.
//
//go:noinline
func (l *local) hasRead(b []byte, err error) error {
	if s := l.dump.Load(); s != nil {
		observe.DumpRead(s, b, netname.Cause(err))
	}
	return l.name(err)
}

func (l *local) Write(b []byte) (n int, err error) {
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
func (l *local) writeDumped(s *dump.Stream, b []byte) (n int, err error) {
	s.Sent(b)
	defer func() { s.NotSent(len(b) - n) }()
	return l.Conn.Write(b)
}

func (l *local) ReadFrom(r io.Reader) (n int64, err error) {
	if l.dump.Load() != nil {
		n, err = io.Copy(onlyWriter{l}, r)
	} else {
		n, err = l.Conn.ReadFrom(r)
	}
	return n, l.name(err)
}

func (l *local) WriteTo(w io.Writer) (n int64, err error) {
	if l.dump.Load() != nil {
		n, err = io.Copy(w, onlyReader{l})
	} else {
		n, err = l.Conn.WriteTo(w)
	}
	return n, l.name(err)
}

func (l *local) WriteBuffers(v *net.Buffers) (n int64, err error) {
	if l.dump.Load() != nil {
		n, err = v.WriteTo(onlyWriter{l})
	} else {
		n, err = l.Conn.WriteBuffers(v)
	}
	return n, l.name(err)
}

type onlyWriter struct{ io.Writer }

type onlyReader struct{ io.Reader }

func (l *local) Close() error {
	if l.ended.Swap(true) {
		return l.name(l.Conn.Close())
	}
	if s := l.dump.Load(); s != nil {
		s.EndSent()
	}
	err := l.Conn.Close()
	violation := l.Violation()
	observe.Ended(l, violation != nil, violation)
	logStayed(l)
	return l.name(err)
}

func (l *local) CloseWrite() error {
	err := l.Conn.CloseWrite()
	if s := l.dump.Load(); s != nil && err == nil {
		s.EndSent()
	}
	return l.name(err)
}

func (l *local) CloseRead() error                   { return l.name(l.Conn.CloseRead()) }
func (l *local) SetDeadline(t time.Time) error      { return l.name(l.Conn.SetDeadline(t)) }
func (l *local) SetReadDeadline(t time.Time) error  { return l.name(l.Conn.SetReadDeadline(t)) }
func (l *local) SetWriteDeadline(t time.Time) error { return l.name(l.Conn.SetWriteDeadline(t)) }
func (l *local) SetLinger(sec int) error            { return l.name(l.Conn.SetLinger(sec)) }
func (l *local) SetKeepAlive(on bool) error         { return l.name(l.Conn.SetKeepAlive(on)) }
func (l *local) SetNoDelay(on bool) error           { return l.name(l.Conn.SetNoDelay(on)) }
func (l *local) SetReadBuffer(bytes int) error      { return l.name(l.Conn.SetReadBuffer(bytes)) }
func (l *local) SetWriteBuffer(bytes int) error     { return l.name(l.Conn.SetWriteBuffer(bytes)) }
func (l *local) SetKeepAlivePeriod(d time.Duration) error {
	return l.name(l.Conn.SetKeepAlivePeriod(d))
}
func (l *local) SetKeepAliveConfig(c net.KeepAliveConfig) error {
	return l.name(l.Conn.SetKeepAliveConfig(c))
}

func (l *local) File() (*os.File, error) {
	f, err := l.Conn.File()
	return f, l.name(err)
}

func (l *local) SyscallConn() (syscall.RawConn, error) {
	raw, err := l.Conn.SyscallConn()
	if err != nil {
		return nil, l.name(err)
	}
	return &rawLocal{raw, l}, nil
}

// rawLocal is what SyscallConn returns.
type rawLocal struct {
	raw syscall.RawConn
	l   *local
}

func (r *rawLocal) Control(f func(fd uintptr)) error { return r.l.name(r.raw.Control(f)) }

func (r *rawLocal) Read(f func(fd uintptr) (done bool)) error { return r.l.name(r.raw.Read(f)) }

func (r *rawLocal) Write(f func(fd uintptr) (done bool)) error { return r.l.name(r.raw.Write(f)) }

// Record returns the connection's place in the table of open connections.
func (l *local) Record() *observe.Record { return &l.recorded }

// Dumped has the dump's stream.
func (l *local) Dumped() *atomic.Pointer[dump.Stream] { return &l.dump }

// Stats returns the connection's statistics.
func (l *local) Stats() stats.Conn {
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
func (l *local) Describe(info *stats.OpenConn) {
	info.Conn, info.Closing = l.Stats(), l.ended.Load()
}
