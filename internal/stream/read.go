//go:build linux

package stream

import (
	"errors"
	"io"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gosdp/gosdp/internal/gate"
	"github.com/gosdp/gosdp/internal/shm"
	"github.com/gosdp/gosdp/internal/spin"
)

// reader is the half of the direction from the peer. It belongs to the holder of rmu.
type reader struct {
	half
	ring    shm.Consumer
	spin    spin.Waiter
	watched spin.Watched
	ended   bool // the writer has put its last byte into the ring: there is nothing to recall

	// Of the Read in progress:
	buf   []byte
	n     int
	err   error
	late  bool      // it found nothing at first
	park  bool      // it must sleep on the doorbell
	seen  gate.Word // what it knows of the gate,
	armed int64     // and of the deadline,
	paid  uint64    // and up to where bytes have earned steps

	// A call is in the netpoller, and has the link; and visits have interrupted it. Guarded by Conn.mu.
	inside, interrupted bool

	onSocket         func(fd uintptr) bool
	announce         func()
	ready, delivered func() bool
}

func (r *reader) init(l *link) {
	r.gate, r.ring = l.seg.InGate(), l.seg.In()
	r.ring.Before(l.c.in.Load())
	r.onSocket = l.readSocket
	r.announce = r.ring.Sleep
	r.ready, r.delivered = l.readerReady, l.readerNews
	r.watched.Ready, r.watched.Wake = r.ready, l.bell.Wake
	r.spin.Start()
}

// Read implements the net.Conn Read method. Inbound flow:
//  1. On TCP, as long as there is no segment or this direction is home: the socket's Read, with a count.
//  2. In a segment, on TCP (readSocket): a system call that does not wait. If it finds bytes, the reader consents to
//     a move. If it finds none, the gate says where the next ones will be.
//  3. In the ring (readRing).
//  4. After a recall, on TCP again (readReturning), where the writer sends what was left in the ring.
func (c *Conn) Read(b []byte) (int, error) {
	if len(b) == 0 {
		return c.tcp.Read(b)
	}
	c.rmu.Lock() // without defer, for a small frame
	n, err := c.readLocked(b)
	raceRead()
	c.rmu.Unlock()
	if c.restless {
		c.fidget()
	}
	return n, err
}

// readLocked is Read with rmu.
func (c *Conn) readLocked(b []byte) (int, error) {
	for {
		l := c.linked.Load()
		if l == nil || l.reader.at() == home {
			if err := c.end; err != nil {
				c.end = nil
				return 0, c.failRead(err)
			}
			if l == nil && c.due() && c.step() {
				continue
			}
			n, err := c.tcp.Read(b)
			c.received(b[:max(0, n)])
			if err == io.EOF {
				err = c.failRead(err)
			}
			return n, err
		}
		n, err := l.read(b)
		if err != nil {
			l.findCut(err)
			return n, c.failRead(err)
		}
		if n > 0 {
			return n, nil
		}
	}
}

func (c *Conn) failRead(err error) error {
	if err == io.EOF {
		if !c.is(cut) || !c.tell() {
			return err
		}
		err = unix.ECONNRESET
	}
	return c.fail("read", err)
}

// findCut finds out whether a stream has ended because the peer has died, and has not read what is in its ring.
func (l *link) findCut(end error) {
	if end == io.EOF && !l.c.is(readShut) && !l.reader.gate.Load().Left() && l.writer.at()&^lent == inRing && l.writer.ring.Pending() {
		l.c.state.Or(cut)
	}
}

// read reads from the link. It returns 0 and no error if the caller has to look again where the bytes are.
func (l *link) read(b []byte) (int, error) {
	c, r := l.c, &l.reader
	r.reclaim()
	switch {
	case r.at() == home: // a visit has just brought it there
		return 0, nil
	case c.is(closed):
		return 0, net.ErrClosed
	case c.violation.Load() != nil:
		return 0, unix.ECONNRESET
	case expired(c.readDeadline.Load()):
		return 0, os.ErrDeadlineExceeded
	case l.mustLeave():
		l.put(&r.half, l.leaveReader(r.at()))
		l.visit(&l.writer.half, &c.wmu, l.leaveWriter) // nobody else may soon
		l.seeHome()
	}
	switch r.at() {
	case home:
		return 0, nil
	case inRing:
		return l.readRing(b)
	}
	r.buf, r.n, r.err, r.late, r.park = b, 0, nil, false, false
	err := l.readRaw()
	r.reclaim()
	r.buf = nil
	switch {
	case r.n > 0:
		return r.n, nil
	case err != nil:
		return 0, c.cause("read", err)
	case r.err != nil:
		return 0, r.err
	case r.park:
		l.sleepReader()
	}
	return 0, nil
}

// readRaw calls readSocket as often as that must wait. Its error is nil if a visit has interrupted it.
func (l *link) readRaw() error {
	c, r := l.c, &l.reader
	c.mu.Lock()
	r.inside = true
	c.mu.Unlock()
	err := l.raw.Read(r.onSocket)
	c.mu.Lock()
	defer c.mu.Unlock()
	r.inside = false
	if r.interrupted {
		r.interrupted = false
		c.tcp.SetReadDeadline(until(c.readDeadline.Load()))
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return nil
		}
	}
	return err
}

// interruptRead makes a Read that waits go on without the link, which would otherwise live as long as the Read.
func (l *link) interruptRead() {
	c, r := l.c, &l.reader
	c.mu.Lock()
	if r.inside {
		r.interrupted = true
		c.tcp.SetReadDeadline(past)
	}
	c.mu.Unlock()
}

// readSocket is the callback of RawConn.Read. The system call must happen in here: the netpoller forgets
// what arrived before.
func (l *link) readSocket(fd uintptr) bool {
	c, r := l.c, &l.reader
	r.reclaim()
	for r.at() != home {
		n, err := read(fd, r.buf)
		if n > 0 {
			c.received(r.buf[:n])
			r.n = n
			c.polled.read(r.late)
			r.ring.Before(c.in.Load())
			l.ring(r.ring.WakeWriter(true)) // which may wait for that
			if r.at() == onTCP {
				l.consent(fd)
			}
			return true
		}
		r.late = true
		var end error
		switch {
		case err == nil:
			end = io.EOF
		case err != unix.EAGAIN:
			end = err
		}
		w := r.gate.Load() // after the system call: an end must not overtake a move
		if r.at() == returning {
			return l.readReturning(w, end)
		}
		next := w.Empty(c.in.Load())
		switch {
		case next == gate.Enter:
			c.keepEnd(end)
			r.move(inRing)
			l.countMove()
			atStep("entered")
			return true
		case end != nil && w.Moved():
			r.err = unix.ECONNRESET // bytes before the ring are lost
			return true
		case end != nil:
			r.err = end
			return true
		case next == gate.Wait:
			r.lend()
			return false
		case next == gate.Ask:
			if !l.consent(fd) {
				r.lend()
				return false
			}
		default:
			r.park, r.seen = true, w
			return true
		}
	}
	return true
}

// consent lets the writer move, unless the program waits on the descriptor itself, or bytes have been read that the
// Conn has not. It reports whether the reader has consented; if not, the next bytes come through TCP.
func (l *link) consent(fd uintptr) bool {
	c, r := l.c, &l.reader
	if c.polled.yes() {
		return false // its descriptor must become readable
	}
	if r.gate.Load().Asks() {
		switch exclusive(fd, func(k counts) bool { return k.received-k.unread == c.in.Load() }) {
		case shared:
			l.refuse(errShared)
			return false
		case altered:
			l.refuse(errAltered)
			return false
		case ending, unknown:
			return false
		}
		atStep("to consent")
		r.gate.Consent()
		atStep("consented")
	}
	return true
}

// readReturning decides what follows if nothing is on TCP while the writer brings the direction home. If
// TCP ends before it has, the rest is in the ring.
func (l *link) readReturning(w gate.Word, end error) bool {
	c, r := l.c, &l.reader
	switch {
	case w.Left():
		c.keepEnd(end)
		l.bring(&r.half)
	case end == nil:
		r.lend()
		return false
	case c.is(readShut):
		r.err = io.EOF // the program's own, and not the peer's
	case c.in.Load() < w.Sent():
		r.err = unix.ECONNRESET
	default:
		atStep("rest of the ring")
		c.mu.Lock()
		before := r.ring.Position()
		r.ring.Discard(c.in.Load() - w.Sent()) // TCP had these
		c.bothIn += r.ring.Position() - before
		c.mu.Unlock()
		r.ended = true
		c.keepEnd(end)
		r.move(inRing)
	}
	return true
}

// keepEnd keeps how TCP has ended, for the Read that comes there: the kernel reports a reset only once.
func (c *Conn) keepEnd(end error) {
	if c.end == nil {
		c.end = end
	}
}

func read(fd uintptr, b []byte) (int, error) {
	for {
		n, err := unix.Read(int(fd), b)
		if err != unix.EINTR {
			return n, err
		}
	}
}

// readRing reads from the ring, or sleeps until there may be something to do.
func (l *link) readRing(b []byte) (int, error) {
	c, r := l.c, &l.reader
	w := r.gate.Load() // before the ring: if the writer had left by then, all of it is there
	n, err := r.ring.Take(b)
	switch {
	case err != nil:
		l.violated(err)
		return 0, unix.ECONNRESET
	case n > 0:
		if !c.got.Load() {
			c.got.Store(true)
		}
		l.ring(r.ring.WakeWriter(false))
		return n, nil
	case w.Left() || r.ended:
		l.bring(&r.half)
		return 0, nil
	case c.is(readShut):
		return 0, io.EOF
	}
	r.seen = w
	l.sleepReader()
	return 0, nil
}

// sleepReader waits for news: it polls, or is left to the Watch, or sleeps on the doorbell.
func (l *link) sleepReader() {
	r := &l.reader
	r.armed = l.c.readDeadline.Load()
	at := r.ring.Position()
	r.spin.Earn(at - r.paid)
	r.paid = at
	var found bool
	if shm.Watch.Runs() {
		found = r.spin.Glance(spin.Looks, r.ready, r.delivered)
	} else {
		found = r.spin.Spin(spin.Looks, r.ready, r.delivered)
	}
	if found {
		return
	}
	begin := spin.Clock()
	if l.bell.Doze(&r.watched, r.announce, r.ready, until(r.armed)) {
		return
	}
	r.ring.Awake()
	r.spin.Parked(begin, time.Duration(r.ring.Rang()), spin.Clock())
}

// readerReady reports whether a Read that sleeps has something to do.
func (l *link) readerReady() bool {
	c := l.c
	return l.readerNews() || l.mustLeave() && !l.reader.ended || c.state.Load()&(closed|readShut) != 0 ||
		c.readDeadline.Load() != l.reader.armed
}

// readerNews reports whether that is something that the peer has sent.
func (l *link) readerNews() bool {
	return l.reader.gate.Load() != l.reader.seen || l.reader.at() == inRing && !l.reader.ring.Empty()
}

// leaveReader recalls the direction, or finds that the writer has come home. It returns where it is then. The
// caller has the half.
func (l *link) leaveReader(at place) place {
	r := &l.reader
	switch {
	case at == returning && r.gate.Load().Left():
		return home
	case at == returning || r.ended:
		return at
	}
	atStep("to recall")
	result := r.gate.Recall()
	atStep("recalled")
	switch result {
	case gate.Unmoved:
		return home
	case gate.Returning:
		l.ring(r.ring.WakeWriter(true))
		return returning
	default:
		r.ended = true
		return at
	}
}
