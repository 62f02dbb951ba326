package proxy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/gosdp/gosdp/sdp"
)

// A Proxy relays the connections of its routes. Its methods are safe for concurrent use.
type Proxy struct {
	log       *slog.Logger
	inherited map[string]*os.File
	gate      gate         // of all connections together
	clients   atomic.Int64 // that are relayed, or wait in this process for room
	loops     loops

	cut      context.Context // done: relays are reset
	cutAll   context.CancelFunc
	relays   sync.WaitGroup
	serving  sync.WaitGroup // of the entrances, those that were removed included
	ready    atomic.Bool
	reloads  atomic.Uint64 // that succeeded
	rejected atomic.Uint64 // reloads that failed

	mu        sync.Mutex
	stopped   bool
	entrances map[string]*entrance // by Listen
	removed   []*entrance          // of routes that are gone, still relaying
	past      map[string]totals    // of removed entrances whose connections have ended
}

// New returns a proxy without routes. limit is the maximum number of connections of all routes
// together; 0 means no limit. inherited are sockets from Inherited.
func New(log *slog.Logger, limit int, inherited map[string]*os.File) *Proxy {
	p := &Proxy{log: log, inherited: inherited, entrances: make(map[string]*entrance), past: make(map[string]totals)}
	p.gate.limit = limit
	p.cut, p.cutAll = context.WithCancel(context.Background())
	return p
}

// Apply makes the proxy serve these routes and no others. A route with the address of an earlier
// one keeps its socket, and relayed connections continue. If a socket cannot be opened, nothing
// changes, and the error names the file and the line of the route.
func (p *Proxy) Apply(file string, routes []Route) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped {
		return errors.New("proxy is stopping")
	}
	wanted := make(map[string]*entrance, len(routes))
	var opened []*entrance
	for i := range routes {
		route := &routes[i]
		key := route.Listen.String()
		for n := 2; wanted[key] != nil; n++ { // the same address with port 0
			key = fmt.Sprintf("%s#%d", route.Listen, n)
		}
		if e := p.entrances[key]; e != nil {
			wanted[key] = e
			continue
		}
		e, err := p.enterLocked(route)
		if err != nil {
			for _, e := range opened {
				e.ln.Close()
			}
			p.rejected.Add(1)
			if route.Line > 0 {
				return &LineError{file, route.Line, err}
			}
			return err
		}
		e.key = key
		wanted[key] = e
		opened = append(opened, e)
	}
	for _, e := range opened {
		if e.from != nil {
			e.from.handedOver.Store(true)
		}
	}
	p.replaceLocked(wanted, routes)
	for _, e := range opened {
		p.serving.Go(func() { e.serve(p.cut, &p.relays) })
	}
	p.reloads.Add(1)
	p.ready.Store(true)
	return nil
}

// replaceLocked replaces the entrances by these, which serve the routes in the same order.
func (p *Proxy) replaceLocked(wanted map[string]*entrance, routes []Route) {
	for key, e := range p.entrances {
		if wanted[key] == nil {
			e.stop()
			p.removed = append(p.removed, e)
		}
	}
	p.removed = slices.DeleteFunc(p.removed, p.endedLocked)
	used := make(map[string]int)
	for i := range routes {
		key := routes[i].Listen.String()
		if used[key]++; used[key] > 1 {
			key = fmt.Sprintf("%s#%d", key, used[key])
		}
		wanted[key].set(&routes[i])
	}
	p.entrances = wanted
}

// atLocked returns the entrance that listens at the address of at, with another protocol.
func (p *Proxy) atLocked(at Endpoint) *entrance {
	for _, e := range p.entrances {
		if e.route.Load().Listen.Clashes(at) {
			return e
		}
	}
	return nil
}

// endedLocked keeps the counters of a removed entrance whose connections have ended, and
// reports whether it is one.
func (p *Proxy) endedLocked(e *entrance) bool {
	select {
	case <-e.ended:
	default:
		return false
	}
	if e.clients.Load() > 0 {
		return false
	}
	var t totals
	t.add(e)
	sum := p.past[e.key]
	sum.sum(t)
	p.past[e.key] = sum
	return true
}

// Routes calls show for each route, with the address at which it listens.
func (p *Proxy) Routes(show func(route Route, at net.Addr)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, e := range p.entrances {
		show(*e.route.Load(), e.ln.Addr())
	}
}

// Stop ends the listening, waits until grace is done for the relayed connections to end, and resets
// the rest. It returns when none is left, and reports how many it has reset.
func (p *Proxy) Stop(grace context.Context) (cut int) {
	p.mu.Lock()
	p.stopped = true
	p.ready.Store(false)
	entrances := make([]*entrance, 0, len(p.entrances))
	for _, e := range p.entrances {
		entrances = append(entrances, e)
	}
	p.mu.Unlock()
	var atCut atomic.Int64
	uncut := context.AfterFunc(grace, func() {
		atCut.Store(int64(p.Open()))
		p.cutAll()
	})
	defer uncut()
	for _, e := range entrances {
		e.stop()
	}
	p.serving.Wait() // only then does relays not grow any more
	p.relays.Wait()
	return int(atCut.Load())
}

// Rejected counts a configuration that is wrong.
func (p *Proxy) Rejected() { p.rejected.Add(1) }

// Unready makes the readiness endpoint fail, so that new clients go elsewhere. The proxy still
// serves those that arrive.
func (p *Proxy) Unready() { p.ready.Store(false) }

// Open returns the number of connections that are being relayed.
func (p *Proxy) Open() int {
	p.gate.mu.Lock()
	defer p.gate.mu.Unlock()
	return p.gate.inside
}

// mayWait reports whether another client that waits for room leaves enough descriptors for those
// that are relayed. It takes one, of those that a relay less would take or of those that are reserved.
func (p *Proxy) mayWait() bool {
	return p.gate.limit == 0 || p.clients.Load() < int64(p.gate.limit)+reserved/2
}

func (p *Proxy) config() *sdp.Config { return &sdp.Config{Logger: p.log} }

// dial connects to an address on a network of an Endpoint.
func (p *Proxy) dial(ctx context.Context, a *attempt, network, address string, mark uint32) (net.Conn, error) {
	d := net.Dialer{Control: func(network, address string, c syscall.RawConn) error {
		if mark != 0 {
			if err := setMark(c, mark); err != nil {
				return err
			}
		}
		return a.control(network, address, c)
	}}
	sd := sdp.Dialer{NetDialer: &d, Config: p.config()}
	switch network {
	case TCP:
		return d.DialContext(ctx, "tcp", address)
	case SDP:
		return sd.DialContext(ctx, "sdp", address)
	}
	return sd.DialContext(ctx, "tcp", address)
}
