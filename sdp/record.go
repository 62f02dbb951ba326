package sdp

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gosdp/gosdp/internal/dump"
	"github.com/gosdp/gosdp/rdma"
	"github.com/gosdp/gosdp/sdp/stats"
)

// operated is what operators see of a connection.
type operated interface {
	// record returns the connection's place in openConns.
	record() *record
	// stats returns the connection's statistics, also after Close.
	stats() stats.Conn
	// describe fills in the part of a ConnInfo that the record does not have.
	describe(info *stats.OpenConn)
	// dumped has the dump's stream, nil without one.
	dumped() *atomic.Pointer[dump.Stream]
}

// A record is what openConns keeps about an open connection.
type record struct {
	next, prev *record // guarded by openConns.mu
	carrier    carrier
	id         uint64
	at         int64 // Unix time in ns
	dialled    bool
	log        *slog.Logger // nil: its events are not logged
}

// openConns are the connections of this process, for Stats and Connections.
var openConns connTable

type connTable struct {
	mu       sync.Mutex // taken before the locks of connections
	first    *record    // of those that are open or closing
	n        int
	opened   uint64
	closed   stats.Traffic // the sum over those that were closed
	byDevice deviceCounts  // of opened
}

// add adds a connection that is open.
func (o *connTable) add(c carrier, dialled bool, log *slog.Logger) {
	up := c.record()
	up.carrier, up.at, up.dialled, up.log = c, time.Now().UnixNano(), dialled, log
	o.mu.Lock()
	o.opened++
	o.n++
	up.id = o.opened
	if up.next = o.first; up.next != nil {
		up.next.prev = up
	}
	o.first = up
	o.byDevice.add(c.Device())
	o.mu.Unlock()
	dumps.opened(up)
	up.logUp()
}

// remove moves a connection from the open ones to the sum. violation says that the peer has broken a rule,
// and err why the connection has ended.
func (o *connTable) remove(c carrier, violation bool, err error) {
	up, last := c.record(), c.stats()
	o.mu.Lock()
	o.n--
	if up.prev != nil {
		up.prev.next = up.next
	} else {
		o.first = up.next
	}
	if up.next != nil {
		up.next.prev = up.prev
	}
	up.next, up.prev = nil, nil
	o.closed.Add(last.Traffic)
	c.dumped().Store(nil)
	o.mu.Unlock()
	up.logEnd(last, violation, err)
}

// list returns the connections that are open now. The caller visits them without mu, so that Dial,
// Accept and Close do not wait for it.
func (o *connTable) list() []*record {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.listLocked()
}

// listLocked is list with mu. A connection that ends in the meantime is in no sum that was copied with the
// list.
func (o *connTable) listLocked() []*record {
	all := make([]*record, 0, o.n)
	for r := o.first; r != nil; r = r.next {
		all = append(all, r)
	}
	return all
}

// logUp logs that the connection has come up.
func (r *record) logUp() {
	if r.log != nil && r.log.Enabled(context.Background(), slog.LevelDebug) {
		c := r.carrier
		args := []any{"id", r.id, "device", c.Device(), "local", c.LocalAddr(), "remote", c.RemoteAddr(), "dialled", r.dialled}
		r.log.Debug("sdp: connection established", appendPinned(args, pinned())...)
	}
}

// logEnd logs that the connection has ended, and whether the peer broke a rule. s are its last
// statistics, err is why it ended.
func (r *record) logEnd(s stats.Conn, violation bool, err error) {
	if r.log == nil || !r.log.Enabled(context.Background(), slog.LevelWarn) {
		return
	}
	var broken *rdma.ProtocolError
	violation = violation || errors.As(err, &broken)
	if !violation && !r.log.Enabled(context.Background(), slog.LevelDebug) {
		return
	}
	c := r.carrier
	args := []any{"id", r.id, "device", c.Device(), "local", c.LocalAddr(), "remote", c.RemoteAddr(),
		"duration", time.Since(time.Unix(0, r.at)).Round(time.Microsecond),
		"sent", s.Sent(), "received", s.Received()}
	if s.Moves > 0 {
		args = append(args, "moves", s.Moves)
	} else if why := s.Stayed(); why != "" {
		args = append(args, "on_tcp", why)
	}
	if err != nil && err != io.EOF {
		args = append(args, "error", err)
	}
	args = appendPinned(args, pinned())
	if violation && violations.Log(r.log, slog.LevelWarn, hostOf(c.RemoteAddr()), "sdp: protocol violation by peer", args...) {
		return
	}
	r.log.Debug("sdp: connection closed", args...)
}
