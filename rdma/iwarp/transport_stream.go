package iwarp

import (
	"errors"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/gosdp/gosdp/internal/bubble"
	"github.com/gosdp/gosdp/rdma/internal/rnic"
)

// isTimeout reports whether a deadline has ended a call. The errors of some multiplexers do not wrap
// os.ErrDeadlineExceeded. ETIMEDOUT, which ends a connection, says that it is a timeout too.
func isTimeout(err error) bool {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return true
	}
	var timeout net.Error
	var kernels syscall.Errno
	return errors.As(err, &timeout) && timeout.Timeout() && !errors.As(err, &kernels)
}

// bare returns the error inside one of package net that names the connection, as this package's
// errors do not. A reset becomes syscall.ECONNRESET on systems that have another number for it,
// because SDP treats a reset in its own way.
func bare(err error) error {
	if op, ok := err.(*net.OpError); ok && op.Addr != nil { // not an alert of TLS
		err = op.Err
	}
	if IsReset(err) && !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) {
		return syscall.ECONNRESET
	}
	return err
}

// lingerZero makes Close send a reset, if the connection supports that.
func lingerZero(c net.Conn) {
	if c, ok := c.(interface{ SetLinger(int) error }); ok {
		c.SetLinger(0)
	}
}

// streamTransport is any net.Conn: on an operating system where descriptors cannot be used
// directly, or of a program's own making. A net.Conn cannot be written without blocking, so a
// goroutine writes from a buffer, and ends the direction, from the first such call until close. Nor
// can it be read without blocking, so a read without wait waits for glance.
//
// mu guards the fields below it. cond is signalled when there is something to do for the goroutine,
// when there is room in buf, and at the end.
type streamTransport struct {
	conn      net.Conn
	readWoken atomic.Bool
	writer    sync.WaitGroup

	mu      sync.Mutex
	cond    bubble.Cond
	buf     []byte // to be written
	spare   []byte
	writing int // bytes that the goroutine is writing now
	started bool
	halving bool // this direction is to end after buf; until that is done, its end is not sent
	ending  bool // no more will be written
	woken   bool // for waitWrite,
	unheard bool // and for settle
	err     error
}

// glance is long enough to find bytes that have arrived, and too short to matter.
const glance = 20 * time.Microsecond

// streamBuffer is how many bytes may wait for the writing goroutine.
const streamBuffer = 256 << 10

func newStreamTransport(c net.Conn) *streamTransport {
	t := &streamTransport{conn: c}
	t.cond.Make()
	return t
}

func (t *streamTransport) write(pieces [][]byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.err != nil {
		return 0, t.err
	}
	if t.ending {
		return 0, net.ErrClosed
	}
	n := 0
	for _, p := range pieces {
		k := min(len(p), streamBuffer-len(t.buf))
		t.buf = append(t.buf, p[:k]...)
		n += k
		if k < len(p) {
			break
		}
	}
	t.startLocked()
	return n, nil
}

// startLocked makes the writing goroutine look for work.
func (t *streamTransport) startLocked() {
	if !t.started {
		t.started = true
		t.writer.Go(t.run)
	}
	t.cond.Broadcast()
}

// run is the writing goroutine.
func (t *streamTransport) run() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for t.err == nil {
		if len(t.buf) == 0 {
			switch {
			case t.ending:
				return
			case t.halving:
				t.mu.Unlock()
				if c, ok := t.conn.(interface{ CloseWrite() error }); ok {
					c.CloseWrite() // over TLS it writes, and so may wait for the peer
				}
				t.mu.Lock()
				t.halving = false
			default:
				t.cond.Wait(&t.mu)
			}
			continue
		}
		b := t.buf
		t.buf, t.spare = t.spare[:0], nil
		t.writing = len(b)
		t.cond.Broadcast()
		t.mu.Unlock()
		_, err := t.conn.Write(b)
		t.mu.Lock()
		t.writing, t.spare = 0, b
		if err != nil {
			t.err = bare(err)
		}
		t.cond.Broadcast()
	}
}

func (t *streamTransport) waitWrite(step func() bool) error {
	for {
		if step() {
			return nil
		}
		t.mu.Lock()
		for len(t.buf) > streamBuffer/2 && !t.woken && !t.ending && t.err == nil {
			t.cond.Wait(&t.mu)
		}
		woken, ending, err := t.woken, t.ending, t.err
		t.woken = false
		t.mu.Unlock()
		switch {
		case err != nil:
			return err
		case ending:
			return net.ErrClosed
		case woken:
			return errWoken
		}
	}
}

func (t *streamTransport) settled() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.buf)+t.writing == 0 // after an error it may stay false; then settle returns the error
}

func (t *streamTransport) settle() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	for len(t.buf)+t.writing > 0 && !t.unheard && !t.ending && t.err == nil {
		t.cond.Wait(&t.mu)
	}
	woken := t.unheard
	t.unheard = false
	switch {
	case t.err != nil:
		return t.err
	case t.ending:
		return net.ErrClosed
	case woken:
		return errWoken
	}
	return nil
}

func (t *streamTransport) wakeWrite() {
	t.mu.Lock()
	t.woken, t.unheard = true, true
	t.cond.Broadcast()
	t.mu.Unlock()
}

func (t *streamTransport) read(s sink, wait bool) (int, error) {
	if !wait {
		// A wake-up during this read is for the next read that waits.
		defer func() {
			t.conn.SetReadDeadline(time.Time{})
			if t.readWoken.Load() {
				t.conn.SetReadDeadline(rnic.Past)
			}
		}()
		t.conn.SetReadDeadline(time.Now().Add(glance))
	}
	first, second := s.space()
	if wait && len(first) > 0 {
		s.got(0) // a region must not be held while parked, so these bytes are copied
		first = nil
	}
	if len(first) == 0 {
		first = second
	}
	n, err := t.conn.Read(first)
	s.got(n)
	switch {
	case n > 0:
		return n, nil // a lasting error will be returned again
	case !isTimeout(err):
		return 0, bare(err)
	case !wait:
		return 0, nil
	}
	if err := t.conn.SetReadDeadline(time.Time{}); err != nil {
		return 0, err
	}
	t.readWoken.Store(false)
	return 0, errWoken
}

func (t *streamTransport) setBusyPoll(time.Duration) {}

func (t *streamTransport) wakeRead() {
	if !t.readWoken.Swap(true) {
		t.conn.SetReadDeadline(rnic.Past)
	}
}

func (t *streamTransport) unsent() (total, inProcess int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.err != nil {
		return 0, 0 // what is left in buf is never written
	}
	n := len(t.buf) + t.writing
	if t.halving {
		n++
	}
	return n, n
}

func (t *streamTransport) closeWrite() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.err == nil && !t.ending {
		t.halving = true
		t.startLocked()
	}
}

func (t *streamTransport) close() error {
	t.mu.Lock()
	t.ending = true
	t.cond.Broadcast()
	t.mu.Unlock()
	err := t.conn.Close()
	t.writer.Wait()
	return err
}

func (t *streamTransport) abort() error {
	lingerZero(t.conn)
	return t.close()
}
