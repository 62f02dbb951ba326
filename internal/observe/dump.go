package observe

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/gosdp/gosdp/internal/bubble"
	"github.com/gosdp/gosdp/internal/dump"
	"github.com/gosdp/gosdp/internal/events"
	"github.com/gosdp/gosdp/internal/lockorder"
	"github.com/gosdp/gosdp/internal/policy"
	"github.com/gosdp/gosdp/sdp/stats"
)

// dumps is the dump that this process writes.
var dumps dumper

// A dumper writes at most one dump at a time. A connection that takes part has a pointer to its
// stream, which is nil otherwise.
type dumper struct {
	mu     lockorder.Mutex[lockorder.Dump] // taken before openConns.mu
	active atomic.Pointer[dump.Dump]
}

// StartDump writes a dump of the connections that are open, and of those to come, to w.
func StartDump(w io.Writer, o dump.Options) (*dump.Dump, error) { return dumps.start(w, o) }

var errDumping = errors.New("another dump of this process is in progress")

// start writes a dump of the connections that are open, and of those to come, to w.
func (d *dumper) start(w io.Writer, o dump.Options) (*dump.Dump, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.active.Load() != nil {
		return nil, errDumping
	}
	text := fmt.Sprintf("Connections of %s/%d over SDP. IP and TCP headers are synthetic.", programName(), os.Getpid())
	started := dump.Start(w, o, text, d.finished)
	d.active.Store(started) // a connection that is opened now is in the list, or sees this, or both
	for _, r := range openConns.list() {
		var info stats.OpenConn
		if r.conn.Describe(&info); !info.Closing {
			d.joinLocked(r, info.Sent() == 0 && info.Received() == 0)
		}
	}
	return started, nil
}

// finished is called when the dump has ended.
func (d *dumper) finished() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.active.Store(nil)
	for _, r := range openConns.list() {
		r.conn.Dumped().Store(nil)
	}
}

// opened adds a connection that has just been opened.
func (d *dumper) opened(r *Record) {
	if d.active.Load() == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.joinLocked(r, true)
}

// joinLocked adds a connection to the dump if the dump's filter selects it. begins: nothing was
// sent or received on it. A Write that is in progress belongs to what was.
func (d *dumper) joinLocked(r *Record, begins bool) {
	active, c := d.active.Load(), r.conn
	if active == nil || c.Dumped().Load() != nil || bubble.Inside() { // the dump's goroutine is outside
		return
	}
	local, remote := c.LocalAddr(), c.RemoteAddr()
	text := fmt.Sprintf("%v to %v over %s", local, remote, c.Device())
	if f := active.Options().Conn; f != "#"+strconv.FormatUint(r.id, 10) && !strings.Contains(text, f) {
		return
	}
	c.Dumped().Store(active.Stream(dump.Conn{
		ID: r.id, Local: AddrPort(local), Remote: AddrPort(remote), Dialled: r.dialled, Begins: begins,
		Text: fmt.Sprintf("%s/%d, connection %d: %s", programName(), os.Getpid(), r.id, text),
	}))
}

// AddrPort returns the address of a TCP socket, and an invalid one for a Unix socket.
func AddrPort(a net.Addr) netip.AddrPort {
	if t, ok := a.(*net.TCPAddr); ok {
		return t.AddrPort()
	}
	return netip.AddrPort{}
}

// DumpRead adds what a Read has returned to a dump.
func DumpRead(s *dump.Stream, b []byte, err error) {
	if s == nil {
		return
	}
	s.Received(b)
	switch {
	case err == io.EOF:
		s.EndReceived()
	case errors.Is(err, syscall.ECONNRESET):
		s.ResetReceived()
	}
}

// asked is the dump for which the environment asks, if it was started.
var asked struct {
	started atomic.Bool
	log     atomic.Pointer[slog.Logger] // of the latest Dial or Listen that has one
	failed  atomic.Pointer[error]       // why it ended early
}

// dumpOnce starts the dump for which the environment asks.
var dumpOnce = sync.OnceValue(dumpAsked)

func dumpAsked() error {
	setting := policy.Getenv(policy.DumpVariable)
	if setting == "" || setting == "off" {
		return nil
	}
	path, options, _ := strings.Cut(setting, ",")
	if !filepath.IsAbs(path) {
		return fmt.Errorf("%q: want off or an absolute path", path)
	}
	o, err := dump.ParseOptions(options)
	if err != nil {
		return err
	}
	f, err := dump.Create(dump.Path(path, os.Getpid()))
	if err != nil {
		return err
	}
	started, err := dumps.start(f, o)
	if err != nil {
		f.Close()
		return err
	}
	asked.started.Store(true)
	go func() {
		<-started.Ended()
		err := started.Stop()
		if err != nil {
			dump.Trim(f, err)
		}
		if err = errors.Join(err, f.Close()); err != nil {
			asked.failed.Store(&err)
			logDumpFailure()
		}
	}()
	return nil
}

// DumpIfAsked starts the dump for which the environment asks. That this cannot be done is no
// reason for a connection to fail.
func DumpIfAsked(log *slog.Logger) {
	if bubble.Inside() {
		return
	}
	if err := dumpOnce(); err != nil {
		events.Process.Complain(log, policy.DumpVariable, "sdp: dump not started", err)
	}
	if log != nil && asked.started.Load() {
		asked.log.Store(log)
		logDumpFailure()
	}
}

// logDumpFailure says that the dump ended early, if it has.
func logDumpFailure() {
	if err := asked.failed.Load(); err != nil {
		events.Process.Complain(asked.log.Load(), policy.DumpVariable, "sdp: the dump ended early, because it could not be written", *err)
	}
}

// ServeDump writes a dump to w, a client of the status socket, until the dump ends or gone is
// closed. It begins with a line that says "ok" or why there is no dump.
func ServeDump(options string, w io.Writer, gone <-chan struct{}) {
	o, err := dump.ParseOptions(options)
	switch {
	case err != nil:
	case policy.Privileged():
		err = errors.New("program is privileged (set-user-ID or file capabilities)")
	case policy.Getenv(policy.DumpVariable) == "off":
		err = errors.New("disabled by SDP_DUMP=off in the program")
	}
	var started *dump.Dump
	if err == nil {
		g := &greeting{w: w, joined: make(chan struct{})}
		started, err = dumps.start(g, o)
		close(g.joined)
	}
	if err != nil {
		fmt.Fprintf(w, "no dump: %v\n", err)
		return
	}
	select {
	case <-started.Ended():
	case <-gone:
	}
	started.Stop()
}

// A greeting writes "ok" before the first bytes, when all open connections take part.
type greeting struct {
	w      io.Writer
	joined chan struct{} // closed then
	done   bool
}

func (g *greeting) Write(b []byte) (int, error) {
	if !g.done {
		g.done = true
		<-g.joined
		if _, err := io.WriteString(g.w, "ok\n"); err != nil {
			return 0, err
		}
	}
	return g.w.Write(b)
}
