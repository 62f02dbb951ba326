// Package listener is the passive side of SDP up to a connected queue pair: it
// accepts TCP connections, tells clients that speak SDP from those that do not,
// and agrees with the former on a device.
//
// A connection goes through these stages, each in a file of its own:
//
//  1. accept.go takes it from the listener below, and makes room for it.
//  2. expect.go knows whether a Request may come, and look.go looks at the first bytes
//     without consuming them. What is not an MPA Request is plain TCP, and goes to Accept
//     untouched.
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
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/gosdp/gosdp/internal/localpeer"
	"github.com/gosdp/gosdp/internal/shmdir"
	"github.com/gosdp/gosdp/internal/spin"
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
	// Dir is a directory in which clients of other network namespaces are met; nil: none.
	Dir *shmdir.Dir
	// Services are addresses that the kernel translates to ours, and through which clients
	// meet us in Dir all the same.
	Services []netip.Prefix
	// ZeroCopy: the program asks for zero copy also on devices that copy by default.
	ZeroCopy bool
	// Probed reports that clients at a remote address may be clients of SDP. Of others
	// on other hosts nothing is waited for, unless SDPOnly. Safe for concurrent use.
	Probed func(local, remote netip.Addr) bool
	// Worth returns nil if the device, of Devices, is worth using at a local address, nil
	// itself if all are. Safe for concurrent use.
	Worth func(device wire.Device, local netip.Addr) error
	// HandshakeTime is how long all may take, from TCP's accept to the client's
	// decision; and so how long the first bytes are waited for of a client that may
	// speak SDP.
	HandshakeTime time.Duration
	// CRC asks for CRC between two ends on one host too.
	CRC bool
	// Logger is told, at debug level, of connections that do not come up.
	Logger *slog.Logger
	// Hello is what we tell of ourselves: Bufs, LocalRcvSz, MaxAdverts, IRD, ORD; and what
	// devices prepare for, if Promise says less.
	Hello wire.Hello
	// Promise returns the Hello of a connection that is about to come up, whose buffers
	// are promised from then on; nil: it is always the same. Withdraw follows for one that
	// does not come up, and is the caller's for one that comes out of Accept. Both are safe
	// for concurrent use.
	Promise  func() wire.Hello
	Withdraw func(wire.Hello)
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

	withdraw func(wire.Hello) // Config.Withdraw
}

// discard ends a connection that nobody has accepted.
func (in *Incoming) discard() {
	if in.QP != nil {
		in.QP.Abort()
		if in.withdraw != nil {
			in.withdraw(in.Local)
		}
	}
	in.Conn.Close()
}

const (
	// maxUnderway bounds the handshakes that run beside each other.
	maxUnderway = 1024
	// maxAhead bounds the connections that wait for Accept, and those on their way up
	// while nobody waits in Accept: with that many accepting stops, so that the rest
	// waits in the kernel's backlog, and a program that wants no more has few more.
	maxAhead = 8
	// maxReady is how many may wait while Accept waits, for one that came before them; and
	// how many at any time if SDPOnly: a client that were not answered could do nothing
	// but fail.
	maxReady = 128
	// orderTime is how long a connection waits for one that came before it and is on
	// its way up, so that Accept keeps the order of arrival.
	orderTime = 2 * time.Millisecond
	// vainTime is for how long none does after that was in vain.
	vainTime = 100 * time.Millisecond
)

// Listener accepts connections, SDP and plain TCP. All its methods are safe for
// concurrent use.
type Listener struct {
	ln   net.Listener
	cfg  Config
	host host

	requests  spin.Habit // of the accepting goroutine, for Requests that are about to come,
	decisions spin.Habit // and for decisions on channels
	places    places
	announced io.Closer         // that SDP is served on a Unix socket; nil: it is not announced
	announcer *shmdir.Announcer // in Config.Dir; nil: it is not announced there

	ctx       context.Context // done when the listener has ended
	cancel    context.CancelFunc
	order     time.Duration  // orderTime, but for tests
	accepting sync.WaitGroup // the accepting goroutine
	workers   sync.WaitGroup // the handshakes
	slots     chan struct{}  // holds one for each handshake under way
	end       sync.Once

	mu       sync.Mutex
	changed  sync.Cond    // of what follows
	queue    []*handshake // in the order of arrival, those that are up among those that are not
	ready    int          // of them are up
	failure  error        // of the listener below, for one Accept
	err      error        // why nothing more will come
	closed   bool         // nothing more is accepted
	ended    bool         // and nothing that was comes out any more
	stopped  bool         // the accepting goroutine has ended
	onDemand bool         // connections are accepted only while Accept waits
	held     bool         // and so the listener below is held up now
	below    bool         // the accepting goroutine is in the Accept of the listener below
	waiting  int          // calls of Accept that wait
	deadline time.Time    // of Accept; zero: none
	alarm    *time.Timer  // wakes Accept at the deadline
	overdue  *time.Timer  // wakes Accept when orderTime is over
	inVain   time.Time    // when that last was
	grace    *time.Timer  // ends the closed listener; nil: it is not closed, or has ended
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
		order:  orderTime,
	}
	l.changed.L = &l.mu
	l.announce()
	l.announceInDir()
	l.accepting.Go(l.run)
	return l
}

// announce shows diallers on this host that SDP is served here. Where it fails, or the
// listener below is no socket, they do not see it, and use plain TCP.
func (l *Listener) announce() {
	if len(l.cfg.Devices) == 0 {
		return
	}
	var err error
	switch at := l.ln.Addr().(type) {
	case *net.UnixAddr:
		l.announced, err = localpeer.AnnounceUnix(at)
	case *net.TCPAddr:
		if sc, ok := l.ln.(syscall.Conn); ok {
			var rc syscall.RawConn
			if rc, err = sc.SyscallConn(); err == nil {
				if err = localpeer.ErrBlind; localpeer.Sees(rc) { // else we would not see who means to send a Request
					err = localpeer.Mark(rc, localpeer.Listener)
				}
			}
		}
	}
	if err != nil {
		l.announced = nil
		l.cfg.Logger.Debug("sdp: programs on this host cannot see that SDP is served", "address", l.ln.Addr(), "error", err)
	}
}

// Accept waits for a connection that is up and returns it. An error of the listener
// below is returned by one Accept, and the next ones go on; os.ErrDeadlineExceeded when
// the deadline has passed. After Close, and after the listener below was closed, it
// returns what had been accepted by then, and then net.ErrClosed. What goes wrong on a
// single connection ends that one, and is not returned.
func (l *Listener) Accept() (*Incoming, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting++
	if l.waiting == 1 {
		l.changed.Broadcast() // the accepting goroutine may have waited for it
	}
	h := l.next()
	for h == nil && l.failure == nil && !l.exhausted() && !l.late() {
		l.changed.Wait()
		h = l.next()
	}
	l.waiting--
	if l.ended || l.late() {
		h = nil
	}
	if h != nil { // before anybody else can
		l.leave(h)
		l.ready--
		l.drained()
	}
	l.changed.Broadcast()
	if l.waiting == 0 && l.onDemand {
		l.hold()
	}
	l.letGo()
	switch {
	case h != nil:
		return h.in, nil
	case l.ended:
		return nil, net.ErrClosed
	case l.late():
		return nil, os.ErrDeadlineExceeded
	case l.failure != nil:
		err := l.failure
		l.failure = nil
		l.changed.Broadcast()
		return nil, err
	case l.closed:
		return nil, net.ErrClosed
	}
	return nil, l.err
}

// next returns the connection that Accept is to return, nil if there is none yet: the
// oldest one that is up, unless one that came before it may still come up in time. Called
// with mu held.
func (l *Listener) next() *handshake {
	for _, h := range l.queue {
		switch {
		case l.ready == 0:
			return nil
		case h.in != nil:
			return h
		}
		if time.Since(l.inVain) < vainTime {
			continue
		}
		wait := l.order - time.Since(h.accepted)
		if wait > 0 {
			l.wakeIn(wait)
			return nil
		}
		if !h.passed {
			h.passed, l.inVain = true, time.Now()
		}
	}
	return nil
}

// wakeIn has Accept look again. Called with mu held.
func (l *Listener) wakeIn(d time.Duration) {
	if l.overdue != nil {
		l.overdue.Reset(d)
		return
	}
	l.overdue = time.AfterFunc(d, func() {
		l.mu.Lock()
		l.changed.Broadcast()
		l.mu.Unlock()
	})
}

// leave takes h out of the queue, and reports whether it was there. Called with mu held.
func (l *Listener) leave(h *handshake) bool {
	i := slices.Index(l.queue, h)
	if i < 0 {
		return false
	}
	l.queue = slices.Delete(l.queue, i, i+1)
	return true
}

// exhausted reports that nothing more can come out of Accept. Called with mu held.
func (l *Listener) exhausted() bool {
	return l.ended || l.stopped && len(l.queue) == 0
}

// OnDemand has connections accepted only while Accept waits: others, which share the
// socket, get the rest. It takes effect at once, if the listener below has a
// SetDeadline.
func (l *Listener) OnDemand() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.onDemand = true
	if l.waiting == 0 {
		l.hold()
		l.letGo()
	}
}

// hold keeps the accepting goroutine from accepting until Accept waits. Called with mu
// held.
func (l *Listener) hold() {
	if below, ok := l.ln.(interface{ SetDeadline(time.Time) error }); ok && !l.held && !l.closed {
		l.held = true
		below.SetDeadline(time.Unix(1, 0))
	}
}

// letGo waits until the listener below, if it is held up, has returned: until then it may
// still take a connection that is for others. Called with mu held.
func (l *Listener) letGo() {
	for l.held && l.below && l.waiting == 0 && !l.closed {
		l.changed.Wait()
	}
}

// unhold ends that. Called with mu held.
func (l *Listener) unhold() {
	if l.held {
		l.held = false
		l.ln.(interface{ SetDeadline(time.Time) error }).SetDeadline(time.Time{})
	}
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

const (
	// closeGrace is how long handshakes may still take after Close.
	closeGrace = time.Second
	// acceptGrace is how long connections that are up wait for an Accept that does not
	// come.
	acceptGrace = 200 * time.Millisecond
)

// Close closes the listener below. Connections that the kernel has not given out stay
// with it, for another process that has the socket. Those that were accepted, and are on
// their way up or wait for Accept, still come out of Accept, for closeGrace and
// acceptGrace at most; then they are ended. If there are none, Close returns when no goroutine of the listener is left.
// Its error is that of the listener below.
func (l *Listener) Close() error {
	l.mu.Lock()
	again := l.closed
	l.closed = true
	l.changed.Broadcast()
	l.mu.Unlock()
	if l.announced != nil {
		l.announced.Close()
	}
	if l.announcer != nil {
		l.announcer.Close()
	}
	err := l.ln.Close()
	l.accepting.Wait()
	l.mu.Lock()
	if !again && !l.exhausted() {
		l.grace = time.AfterFunc(acceptGrace, func() { l.finishIdle(closeGrace - acceptGrace) })
	}
	idle := l.exhausted()
	l.mu.Unlock()
	if idle {
		l.finish()
	}
	return err
}

// drained ends a closed listener when nothing more comes. Called with mu held.
func (l *Listener) drained() {
	if l.closed && l.grace != nil && l.exhausted() && l.grace.Stop() {
		go l.finish()
	}
}

// finishIdle is finish, after d if there are handshakes under way or Accept waits for
// one.
func (l *Listener) finishIdle(d time.Duration) {
	l.mu.Lock()
	if len(l.queue) > l.ready && !l.ended {
		l.grace = time.AfterFunc(d, l.finish)
		l.mu.Unlock()
		return
	}
	l.mu.Unlock()
	l.finish()
}

// finish ends every handshake and every connection that was not accepted.
func (l *Listener) finish() {
	l.end.Do(func() {
		l.mu.Lock()
		l.ended = true
		abandoned := l.queue
		l.queue = nil
		for _, timer := range []*time.Timer{l.alarm, l.overdue, l.grace} {
			if timer != nil {
				timer.Stop()
			}
		}
		l.changed.Broadcast()
		l.mu.Unlock()
		l.cancel()
		for _, h := range abandoned {
			if h.in != nil {
				h.in.discard()
			}
		}
		l.workers.Wait()
		l.places.close()
	})
}

// Addr returns the address of the listener below.
func (l *Listener) Addr() net.Addr { return l.ln.Addr() }
