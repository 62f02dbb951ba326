// Package observe is what operators see of this process: the table of its open connections, totals,
// the status socket, the dump, and what is logged of connections. It knows a connection as a [Conn],
// and imports none of the packages that make them.
package observe

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"sync/atomic"
	"time"

	"github.com/gosdp/gosdp/internal/dump"
	"github.com/gosdp/gosdp/internal/events"
	"github.com/gosdp/gosdp/internal/lockorder"
	"github.com/gosdp/gosdp/rdma"
	"github.com/gosdp/gosdp/sdp/stats"
)

// Conn is what operators see of a connection.
type Conn interface {
	LocalAddr() net.Addr
	RemoteAddr() net.Addr
	// Device returns the name of what carries the bytes.
	Device() string
	// Record returns the connection's place in the table.
	Record() *Record
	// Stats returns the connection's statistics, also after Close.
	Stats() stats.Conn
	// Describe fills in the part of an OpenConn that the Record does not have.
	Describe(info *stats.OpenConn)
	// Dumped has the dump's stream, nil without one.
	Dumped() *atomic.Pointer[dump.Stream]
}

// A Record is what the table of open connections keeps about one. The zero value is ready for Opened.
type Record struct {
	next, prev *Record // guarded by openConns.mu
	conn       Conn
	id         uint64
	at         int64 // Unix time in ns
	dialled    bool
	log        *slog.Logger // nil: its events are not logged
}

// Opened adds a connection to those that are open. Its events go to log; nil: nowhere.
func Opened(c Conn, dialled bool, log *slog.Logger) { openConns.add(c, dialled, log) }

// Ended removes a connection from those that are open. violation says that the peer has broken a rule,
// and err why the connection has ended.
func Ended(c Conn, violation bool, err error) { openConns.remove(c, violation, err) }

// Open returns the connections that are open or closing.
func Open() []Conn {
	records := openConns.list()
	all := make([]Conn, len(records))
	for i, r := range records {
		all[i] = r.conn
	}
	return all
}

// openConns are the connections of this process, for Stats and Connections.
var openConns connTable

type connTable struct {
	mu       lockorder.Mutex[lockorder.OpenConns] // taken before the locks of connections
	first    *Record                              // of those that are open or closing
	n        int
	opened   uint64
	closed   stats.Traffic // the sum over those that were closed
	byDevice deviceCounts  // of opened
}

// add adds a connection that is open.
func (o *connTable) add(c Conn, dialled bool, log *slog.Logger) {
	up := c.Record()
	up.conn, up.at, up.dialled, up.log = c, time.Now().UnixNano(), dialled, log
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
func (o *connTable) remove(c Conn, violation bool, err error) {
	up, last := c.Record(), c.Stats()
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
	c.Dumped().Store(nil)
	o.mu.Unlock()
	up.logEnd(last, violation, err)
}

// list returns the connections that are open now. The caller visits them without mu, so that Dial,
// Accept and Close do not wait for it.
func (o *connTable) list() []*Record {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.listLocked()
}

// listLocked is list with mu. A connection that ends in the meantime is in no sum that was copied with the
// list.
func (o *connTable) listLocked() []*Record {
	all := make([]*Record, 0, o.n)
	for r := o.first; r != nil; r = r.next {
		all = append(all, r)
	}
	return all
}

// logUp logs that the connection has come up.
func (r *Record) logUp() {
	if r.log != nil && r.log.Enabled(context.Background(), slog.LevelDebug) {
		c := r.conn
		args := []any{"id", r.id, "device", c.Device(), "local", c.LocalAddr(), "remote", c.RemoteAddr(), "dialled", r.dialled}
		r.log.Debug("sdp: connection established", appendPinned(args, pinned())...)
	}
}

// logEnd logs that the connection has ended, and whether the peer broke a rule. s are its last
// statistics, err is why it ended.
func (r *Record) logEnd(s stats.Conn, violation bool, err error) {
	if r.log == nil || !r.log.Enabled(context.Background(), slog.LevelWarn) {
		return
	}
	var broken *rdma.ProtocolError
	violation = violation || errors.As(err, &broken)
	if !violation && !r.log.Enabled(context.Background(), slog.LevelDebug) {
		return
	}
	c := r.conn
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

// appendPinned adds how many bytes are locked in memory for each RDMA device, if there are any.
func appendPinned(args []any, bytes map[string]int64) []any {
	if len(bytes) > 0 {
		args = append(args, "pinned", bytes)
	}
	return args
}

// violations limits what peers can make this process log: a line for each host and minute. The
// limiter is not the process's, in which the hosts of an attack would take all places.
var violations events.Limiter

// hostOf returns the part of an address that the peer does not choose anew for each connection.
func hostOf(a net.Addr) string {
	if t, ok := a.(*net.TCPAddr); ok {
		return t.AddrPort().Addr().Unmap().String()
	}
	return a.String()
}
