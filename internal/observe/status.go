package observe

import (
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"os"
	"path/filepath"
	"sort"
	"sync"
	"time"

	"github.com/gosdp/gosdp/internal/bubble"
	"github.com/gosdp/gosdp/internal/events"
	"github.com/gosdp/gosdp/internal/policy"
	"github.com/gosdp/gosdp/internal/status"
	"github.com/gosdp/gosdp/sdp/stats"
)

// Connections returns the open connections, including those that are closing, ordered by ID.
func Connections() []stats.OpenConn { return connections(math.MaxInt) }

// connections returns the first open connections, at most most.
func connections(most int) []stats.OpenConn {
	open := openConns.list()
	sort.Slice(open, func(i, j int) bool { return open[i].id < open[j].id }) // less code than slices.SortFunc
	open = open[:min(len(open), most)]
	all := make([]stats.OpenConn, 0, len(open))
	for _, r := range open {
		info := stats.OpenConn{
			ID: r.id, Opened: time.Unix(0, r.at), Dialled: r.dialled,
			Local: r.conn.LocalAddr(), Remote: r.conn.RemoteAddr(),
		}
		r.conn.Describe(&info)
		all = append(all, info)
	}
	return all
}

// WriteStatus writes the state of this process's connections to w as one JSON object.
func WriteStatus(w io.Writer) error {
	t := Totals()
	p := status.Program{
		Version: status.Version,
		PID:     os.Getpid(), UID: os.Geteuid(), Name: programName(), Time: time.Now(),
		Open: t.Open, Opened: t.Opened, Closing: t.Closing, Memory: t.Memory, MemoryLimit: t.MemoryLimit, Pinned: t.Pinned,
		PlainDials: plainDials.names(), PlainAccepts: plainAccepts.names(),
		Conns: status.Conns{},
	}
	for _, c := range connections(status.MaxListed) {
		p.Conns = append(p.Conns, status.Conn{
			ID: c.ID, Local: c.Local.String(), Remote: c.Remote.String(), Device: c.Device,
			Dialled: c.Dialled, Closing: c.Closing, Opened: c.Opened,
			Sent: c.Sent(), Received: c.Received(), Moves: c.Moves, OnTCP: c.OnTCP,
			ZCopySent: c.ZCopySent, ZCopyRecv: c.ZCopyReceived,
			MsgSent: c.BcopySent.Messages, MsgRecv: c.BcopyReceived.Messages,
			Stalls: c.CreditStalls, Unread: c.Unread,
			SendCredit: c.SendCredit, RecvCredit: c.ReceiveCredit,
			Buffers: c.Buffers, BufferSize: c.BufferSize, Mode: mode(c.Conn), Declined: c.Declined,
		})
	}
	return p.Write(w)
}

// mode says how the stream is carried.
func mode(c stats.Conn) string {
	switch {
	case c.Device == "tcp":
		return "socket"
	case c.Device == "shm":
		return "ring"
	case c.Advertised > 0 || c.ZCopySent+c.ZCopyReceived > 0:
		return "zcopy"
	}
	return "bcopy"
}

func programName() string {
	if len(os.Args) == 0 {
		return ""
	}
	return filepath.Base(os.Args[0])
}

// ServeStatus serves the state on a socket until every stop was called.
func ServeStatus() (stop func() error, err error) {
	return served.serve(status.Dir(policy.Getenv(policy.StatusVariable), os.Geteuid()))
}

// served is the status socket of this process.
var served statusServer

// A statusServer serves one socket for all callers of ServeStatus.
type statusServer struct {
	mu     sync.Mutex
	users  int
	server *status.Server // nil without users
}

func (s *statusServer) serve(dir string) (stop func() error, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.server == nil {
		if s.server, err = status.Serve(dir, status.Handlers{Status: WriteStatus, Dump: ServeDump}); err != nil {
			s.server = nil
			return nil, &net.OpError{Op: "listen", Net: "unix", Err: err}
		}
	}
	s.users++
	return sync.OnceValue(s.stop), nil
}

func (s *statusServer) stop() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.users--; s.users > 0 {
		return nil
	}
	server := s.server
	s.server = nil
	return server.Close()
}

// serveStatusOnce serves the status if the environment asks for it.
var serveStatusOnce = sync.OnceValue(func() error { return serveStatusIf(policy.Getenv(policy.StatusVariable)) })

func serveStatusIf(setting string) error {
	switch {
	case setting == "" || setting == "0":
		return nil
	case setting != "1" && !filepath.IsAbs(setting):
		return fmt.Errorf("%q: want 0, 1 or an absolute path", setting)
	}
	_, err := ServeStatus()
	return err
}

// ServeIfAsked serves the status if the environment asks for it. That it cannot be served is
// no reason for a connection to fail.
func ServeIfAsked(log *slog.Logger) {
	if bubble.Inside() { // no goroutine outside a synctest bubble may come from inside
		return
	}
	if err := serveStatusOnce(); err != nil {
		events.Process.Complain(log, policy.StatusVariable, "sdp: status socket not served", err)
	}
}
