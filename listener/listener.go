// Package listener is the passive side of SDP up to a connected queue pair: it
// accepts TCP connections, tells clients that speak SDP from those that do not,
// and agrees with the former on a device.
//
// A connection goes through these stages, each in a file of its own:
//
//  1. accept.go takes it from the listener below, and makes room for it.
//  2. look.go looks at its first bytes without consuming them. What is not an
//     MPA Request is plain TCP, and goes to Accept untouched.
//  3. handshake.go reads the Request with the client's offers and its Hello,
//     and answers with the choice and the HelloAck.
//  4. stepup.go invites the client to another device's channel, if there is a
//     better one than the TCP connection itself.
//  5. decision.go waits for the client's decision between the two, which is the
//     first SDP message. Only then does the connection go to Accept.
//
// All of that happens beside all the rest: a client that is slow, silent or
// wrong holds up nobody, and ends by its own failure. Only what needs no waiting the
// accepting goroutine does itself (handshake.prompt).
package listener

import (
	"context"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"

	"github.com/gosdp/gosdp/internal/lookout"
	"github.com/gosdp/gosdp/rdma"
	"github.com/gosdp/gosdp/wire"
)

// Config is how a Listener treats those who connect. All of it is needed, there
// are no defaults.
type Config struct {
	// SDPOnly closes what does not speak SDP, or has no device in common with
	// us. Otherwise that is plain TCP.
	SDPOnly bool
	// Devices are the names of those that may be used and can be, the best one
	// first.
	Devices []string
	// StepUpTime is how long a client may take that is invited to another
	// device's channel, from its decision on.
	StepUpTime time.Duration
	// ThroughProxies invites also clients that see other ends of the TCP
	// connection than we do.
	ThroughProxies bool
	// UIDs are the users, beside our own, whose programs may share memory with
	// this one.
	UIDs []int
	// LookTime is how long a client may take to show that it speaks SDP. It does
	// not count if SDPOnly: then there is the HandshakeTime for that too.
	LookTime time.Duration
	// HandshakeTime is how long all may take, from TCP's accept to the client's
	// decision.
	HandshakeTime time.Duration
	// CRC asks for CRC between two ends on one host too.
	CRC bool
	// Logger is told, at debug level, of connections that do not come up.
	Logger *slog.Logger
	// Hello is what we tell of ourselves: Bufs, LocalRcvSz, MaxAdverts, IRD, ORD.
	Hello wire.Hello
}

// Incoming is a connection that has come up.
type Incoming struct {
	// Conn is the TCP connection. If it is plain, nothing of it was consumed,
	// but for an MPA Request that has been rejected.
	Conn net.Conn
	// QP is the connected queue pair, with the receive buffers that Local
	// announces. It is nil if the connection is plain, and so is all below it.
	QP     rdma.QueuePair
	Device string     // the name of the device that QP is of
	Local  wire.Hello // our HelloAck
	Peer   wire.Hello // the client's Hello
	// First is the header of the client's decision, which has been released; nil
	// if that was StepUp, and so no message of QP's.
	First *wire.Header
	// Declined says of devices, by name, why they are not QP's.
	Declined map[string]string
}

// discard ends a connection that nobody has accepted.
func (in *Incoming) discard() {
	if in.QP != nil {
		in.QP.Abort()
	}
	in.Conn.Close()
}

const (
	// maxUnderway bounds the handshakes that run beside each other.
	maxUnderway = 1024
	// maxReady bounds the connections that wait for Accept: with that many there
	// accepting stops, so that the rest waits in the kernel's backlog.
	maxReady = 128
)

// Listener accepts connections, SDP and plain TCP. All its methods are safe for
// concurrent use.
type Listener struct {
	ln   net.Listener
	cfg  Config
	host host

	places   places
	requests lookout.Habit // of the accepting goroutine, for clients that go on over a channel

	ctx     context.Context // done when the listener is closed
	cancel  context.CancelFunc
	workers sync.WaitGroup // the accepting goroutine and the handshakes
	slots   chan struct{}  // holds one for each handshake under way

	mu       sync.Mutex
	changed  sync.Cond    // ready, err or closed
	underway []*handshake // oldest first
	ready    []*Incoming  // oldest first
	err      error        // why nothing more will come
	closed   bool
	deadline time.Time   // of Accept; zero: none
	alarm    *time.Timer // wakes Accept at the deadline
}

// New returns a Listener that accepts from ln, which it owns from now on. It
// runs until Close.
func New(ln net.Listener, cfg Config) *Listener {
	return newListener(ln, cfg, maxUnderway)
}

func newListener(ln net.Listener, cfg Config, underway int) *Listener {
	ctx, cancel := context.WithCancel(context.Background())
	l := &Listener{
		ln:     ln,
		cfg:    cfg,
		host:   thisHost(),
		ctx:    ctx,
		cancel: cancel,
		slots:  make(chan struct{}, underway),
	}
	l.changed.L = &l.mu
	l.workers.Go(l.run)
	return l
}

// Accept waits for a connection that is up and returns it. It returns the
// error that ended the listener below, when all that came before is accepted,
// os.ErrDeadlineExceeded when the deadline has passed, and net.ErrClosed after
// Close. What goes wrong on a single connection ends
// that one, and is not returned.
func (l *Listener) Accept() (*Incoming, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.ready) == 0 && l.err == nil && !l.closed && !l.late() {
		l.changed.Wait()
	}
	switch {
	case l.closed:
		return nil, net.ErrClosed
	case l.late():
		return nil, os.ErrDeadlineExceeded
	case len(l.ready) == 0:
		return nil, l.err
	}
	in := l.ready[0]
	l.ready[0] = nil
	l.ready = l.ready[1:]
	l.changed.Broadcast()
	return in, nil
}

// late reports that Accept's deadline has passed. Called with mu held.
func (l *Listener) late() bool {
	return !l.deadline.IsZero() && !time.Now().Before(l.deadline)
}

// SetDeadline sets when Accept calls, those in progress included, fail with
// os.ErrDeadlineExceeded; the zero time means never.
func (l *Listener) SetDeadline(t time.Time) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return net.ErrClosed
	}
	if l.alarm != nil {
		l.alarm.Stop()
		l.alarm = nil
	}
	if l.deadline = t; !t.IsZero() {
		l.alarm = time.AfterFunc(time.Until(t), func() {
			l.mu.Lock()
			l.changed.Broadcast()
			l.mu.Unlock()
		})
	}
	l.changed.Broadcast()
	return nil
}

// Below returns the listener below.
func (l *Listener) Below() net.Listener { return l.ln }

// deliver queues in for Accept.
func (l *Listener) deliver(in *Incoming) {
	l.mu.Lock()
	closed := l.closed
	if !closed {
		l.ready = append(l.ready, in)
		l.changed.Broadcast()
	}
	l.mu.Unlock()
	if closed {
		in.discard()
	}
}

// Close closes the listener below, ends every handshake and every connection
// that was not accepted, and returns when none of the listener's goroutines is
// left. Its error is that of the listener below.
func (l *Listener) Close() error {
	l.mu.Lock()
	l.closed = true
	abandoned := l.ready
	l.ready = nil
	if l.alarm != nil {
		l.alarm.Stop()
	}
	l.changed.Broadcast()
	l.mu.Unlock()
	l.cancel()
	err := l.ln.Close()
	for _, in := range abandoned {
		in.discard()
	}
	l.workers.Wait()
	l.places.close()
	return err
}

// Addr returns the address of the listener below.
func (l *Listener) Addr() net.Addr { return l.ln.Addr() }
