package main

import (
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"
)

// sameHost refuses clients on other hosts: orchestrators need the address open to the network,
// and the page shows the addresses of all clients. It also refuses host names, because a page of
// another site, whose name was made to resolve to this host, is no client of it (DNS rebinding).
func sameHost(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case !fromSameHost(r):
			http.Error(w, "only for clients on this host", http.StatusForbidden)
		case !namesAddress(r.Host):
			http.Error(w, "only by an IP address or localhost", http.StatusForbidden)
		default:
			h.ServeHTTP(w, r)
		}
	})
}

// fromSameHost reports whether the client has an address of this host. Linux takes the address that
// is connected to as the client's own, if the client is on the same host and names no other.
func fromSameHost(r *http.Request) bool {
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return false
	}
	at, _ := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	return from.Addr().Unmap().IsLoopback() || at != nil && from.Addr().Unmap() == at.AddrPort().Addr().Unmap()
}

// namesAddress reports whether a Host header has an IP address or localhost, with or without a port.
func namesAddress(host string) bool {
	name, _, err := net.SplitHostPort(host)
	if err != nil {
		name = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	}
	_, err = netip.ParseAddr(name)
	return err == nil || strings.EqualFold(name, "localhost")
}

// maxHTTP is how many clients serveHTTP serves at a time: they must not take the descriptors of
// connections that are relayed.
const maxHTTP = 128

// serveHTTP serves the handler at the address until stop is called.
func serveHTTP(address string, h http.Handler, log *slog.Logger) (stop func(), err error) {
	ln, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(stdout, "serving http://%s\n", ln.Addr())
	server := newHTTPServer(h, log)
	go server.Serve(ln)
	return func() { server.Close() }, nil
}

// newHTTPServer returns a server that bounds the number of its clients, and the time of each.
func newHTTPServer(h http.Handler, log *slog.Logger) *http.Server {
	clients := httpClients{open: make(map[net.Conn]time.Time)}
	return &http.Server{
		Handler: h, ReadHeaderTimeout: 2 * time.Second, ReadTimeout: 5 * time.Second, WriteTimeout: 10 * time.Second,
		IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10,
		ErrorLog:  slog.NewLogLogger(log.Handler(), slog.LevelDebug),
		ConnState: clients.note,
	}
}

// httpClients bounds the connections of serveHTTP. If there is one too many, it closes the one that
// has been silent for longest, even in the middle of a request: clients that send no body, or read
// no answer, must not keep out the orchestrator's probes, and neither must those that ask for nothing.
type httpClients struct {
	mu   sync.Mutex
	open map[net.Conn]time.Time // when it connected, or its last request began or was answered
}

// note has the form of http.Server.ConnState.
func (h *httpClients) note(c net.Conn, state http.ConnState) {
	if extra := h.set(c, state); extra != nil {
		extra.Close()
	}
}

// set notes the state of c, and returns the connection to close if there is one too many.
func (h *httpClients) set(c net.Conn, state http.ConnState) (extra net.Conn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch state {
	case http.StateNew:
		if len(h.open) >= maxHTTP {
			extra = h.oldestLocked()
			delete(h.open, extra)
		}
		h.open[c] = time.Now()
	case http.StateActive, http.StateIdle:
		if _, ok := h.open[c]; ok { // it has a place
			h.open[c] = time.Now()
		}
	default:
		delete(h.open, c)
	}
	return extra
}

// oldestLocked returns the connection that has been silent for longest.
func (h *httpClients) oldestLocked() (oldest net.Conn) {
	for c, since := range h.open {
		if oldest == nil || since.Before(h.open[oldest]) {
			oldest = c
		}
	}
	return oldest
}
