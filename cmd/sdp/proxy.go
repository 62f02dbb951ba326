package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/gosdp/gosdp/internal/proxy"
	"github.com/gosdp/gosdp/sdp"
	"github.com/gosdp/gosdp/sdp/debug"
)

func proxyCommand() *command {
	c := &command{
		name:  "proxy",
		usage: "[flags] -listen endpoint -dial endpoint ...   or   sdp proxy [flags] -config file",
		short: "relay between TCP and SDP, for programs in any language",
		long:  proxyHelp,
	}
	return withFlags(c, func(f *proxyFlags, rest []string) error {
		if len(rest) > 0 {
			return misuse(c.name, "unexpected argument %q", rest[0])
		}
		return f.run()
	})
}

const proxyHelp = `
Proxy accepts connections and relays each to another address, over TCP or over SDP. One
proxy stands beside the server and one beside its clients, and neither program notices:

	sdp proxy -listen sdp://:7000 -dial tcp://127.0.0.1:5432             # beside PostgreSQL
	sdp proxy -listen tcp://127.0.0.1:5432 -dial sdp://db.example:7000   # beside psql

What one end does to its connection the other end sees: data, the end of one direction,
and resets. A connection whose target cannot be reached is reset.

An endpoint is a protocol and an address:

	tcp://host:port    plain TCP
	sdp://host:port    SDP; clients without it are reset, and so is a client whose
	                   target does not speak it
	auto://host:port   SDP if the peer speaks it, otherwise plain TCP
	tcp://@name        listens on the socket that systemd passes under that name
	sdp://original     dials the address that the client wanted, if nftables has
	                   redirected its connection here (transparent mode, Linux)

-listen and -dial may be repeated: the first -listen belongs to the first -dial, and so on.
A file has one route a line: where to listen, where to dial, and options. "#" begins a
comment.

	tcp://127.0.0.1:5432   sdp://db.example:7000   limit=500
	tcp://[::]:15001       auto://original         mark=0x5d9 dial-timeout=5s
	auto://@inbound        tcp://original

	limit=N            relay at most N connections at a time; further ones wait
	dial-timeout=TIME  how long a client waits for its target
	mark=N             set this firewall mark (SO_MARK) on what is dialled, so that rules
	                   can tell the proxy's own connections; needs CAP_NET_ADMIN

SIGHUP reads the file again. Routes that stay keep their sockets, and connections that are
relayed go on. If the file has an error, the proxy keeps its configuration and logs the
line.

SIGTERM and SIGINT end the proxy: it stops listening, lets its connections end by
themselves for the time of -grace, and resets the rest. A second SIGINT or SIGTERM ends it at once.
With -delay it first goes on accepting for that time, while /ready says 503.

With -http it serves /live, /ready, /metrics (Prometheus) and, to clients on the same host,
/debug/sdp (a page with its connections) there. It tells systemd when it is ready
(Type=notify). docs/operations.md has a unit, a container file, a Kubernetes manifest and the
rules for nftables.`

// proxyFlags are the command's flags.
type proxyFlags struct {
	listen, dial []proxy.Endpoint
	config       string
	check        bool
	http         string
	level        slog.Level
	limit        int
	mark         uint
	dialTimeout  time.Duration
	grace        time.Duration
	delay        time.Duration
}

func (f *proxyFlags) define(fs *flag.FlagSet) {
	fs.Func("listen", "accept connections at this `endpoint`", func(text string) error {
		e, err := proxy.ParseListen(text)
		f.listen = append(f.listen, e)
		return err
	})
	fs.Func("dial", "relay them to this `endpoint`", func(text string) error {
		e, err := proxy.ParseDial(text)
		f.dial = append(f.dial, e)
		return err
	})
	fs.StringVar(&f.config, "config", "", "read the routes from this `file`")
	fs.BoolVar(&f.check, "check", false, "check the configuration, and that no routes lead in a circle, and exit")
	fs.StringVar(&f.http, "http", "", "serve /live, /ready, /metrics and /debug/sdp at this `address`")
	fs.TextVar(&f.level, "log", slog.LevelInfo, "log at this `level` and above: debug, info, warn or error")
	fs.IntVar(&f.limit, "limit", 0, "relay at most this `number` of connections of all routes together;\n0: as many as the limit of descriptors (ulimit -n) allows")
	fs.UintVar(&f.mark, "mark", 0, "the firewall `mark` (a number) of routes that name none; 0: none")
	fs.DurationVar(&f.dialTimeout, "dial-timeout", proxy.DefaultDialTimeout, "the `time` that a client waits for its target")
	fs.DurationVar(&f.grace, "grace", 30*time.Second, "the `time` that connections may go on after a signal")
	fs.DurationVar(&f.delay, "delay", 0, "the `time` from a signal until the proxy stops listening; 0: none")
}

// routes returns the routes of the flags or of the file.
func (f *proxyFlags) routes() ([]proxy.Route, error) {
	options := proxy.Options{DialTimeout: f.dialTimeout, Mark: uint32(f.mark)}
	if f.config != "" {
		return proxy.ReadFile(f.config, options)
	}
	routes := make([]proxy.Route, len(f.listen))
	for i := range routes {
		routes[i] = proxy.Route{Listen: f.listen[i], Dial: f.dial[i], Options: options}
	}
	return routes, nil
}

func (f *proxyFlags) valid() error {
	switch {
	case f.config == "" && len(f.listen) == 0:
		return misuse("proxy", "missing -config or -listen")
	case f.config != "" && len(f.listen)+len(f.dial) > 0:
		return misuse("proxy", "-config and -listen are mutually exclusive")
	case len(f.listen) != len(f.dial):
		return misuse("proxy", "got %d -listen and %d -dial, want as many of each", len(f.listen), len(f.dial))
	case f.twice() != "":
		return misuse("proxy", "duplicate -listen address %s", f.twice())
	case f.http != "" && !hasPort(f.http):
		return misuse("proxy", "-http %q: want host:port or :port", f.http)
	case f.limit < 0:
		return misuse("proxy", "-limit %d: must not be negative", f.limit)
	case f.dialTimeout <= 0:
		return misuse("proxy", "-dial-timeout %v: must be positive", f.dialTimeout)
	case f.grace < 0:
		return misuse("proxy", "-grace %v: must not be negative", f.grace)
	case f.delay < 0:
		return misuse("proxy", "-delay %v: must not be negative", f.delay)
	case f.mark > 1<<32-1:
		return misuse("proxy", "-mark %#x: want a number below 2^32", f.mark)
	}
	return nil
}

// twice returns an address at which two of the flags listen, or "".
func (f *proxyFlags) twice() string {
	for i, l := range f.listen {
		if slices.ContainsFunc(f.listen[:i], l.Clashes) {
			return l.Address
		}
	}
	return ""
}

// lookupTime is how long -check waits for the names of hosts.
const lookupTime = 5 * time.Second

func hasPort(address string) bool {
	_, port, err := net.SplitHostPort(address)
	return err == nil && port != ""
}

func (f *proxyFlags) run() error {
	if err := f.valid(); err != nil {
		return err
	}
	// From here on no signal is lost, even if something takes long.
	ends, hangups := make(chan os.Signal, 1), make(chan os.Signal, 1)
	signal.Notify(ends, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(ends)
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)

	inherited, err := proxy.Inherited()
	if err != nil {
		return err
	}
	routes, err := f.routes()
	if err != nil {
		return err
	}
	if f.check {
		ctx, cancel := context.WithTimeout(context.Background(), lookupTime)
		defer cancel()
		return proxy.CheckCircles(ctx, f.config, routes)
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: f.level}))
	spare := 0
	if f.http != "" {
		spare = maxHTTP
	}
	p := proxy.New(log, cmp.Or(f.limit, proxy.DefaultLimit(spare)), inherited)
	if f.http != "" {
		mux := http.NewServeMux()
		mux.Handle("/", p.Handler())
		mux.Handle("/debug/sdp", sameHost(debug.Handler()))
		stop, err := serveHTTP(f.http, mux, log)
		if err != nil {
			return err
		}
		defer stop()
	}
	if err := p.Apply(f.config, routes); err != nil {
		p.Stop(context.Background())
		return err
	}
	p.Routes(func(route proxy.Route, at net.Addr) {
		fmt.Fprintf(stdout, "relaying from %s://%s to %s\n", route.Listen.Network, at, route.Dial)
	})
	notify(log, "READY=1")
	for ended := false; !ended; {
		select {
		case <-ends:
			ended = true
		case <-hangups:
			f.reload(p, log)
		}
	}
	signal.Stop(ends) // a second one ends the program
	f.stop(p, log)
	return nil
}

// reload reads the file again. If the file is wrong, the old configuration stays in effect.
func (f *proxyFlags) reload(p *proxy.Proxy, log *slog.Logger) {
	if f.config == "" {
		log.Warn("SIGHUP ignored: routes were given as flags")
		return
	}
	notify(log, "RELOADING=1")
	defer notify(log, "READY=1")
	routes, err := f.routes()
	if err == nil {
		err = p.Apply(f.config, routes)
	} else {
		p.Rejected()
	}
	if err != nil {
		for _, err := range each(err) {
			log.Error("configuration reload failed, the old one stays in effect", "error", err)
		}
		return
	}
	log.Info("configuration reloaded", "file", f.config, "routes", len(routes))
}

// each returns the errors that err has joined.
func each(err error) []error {
	var joined interface{ Unwrap() []error }
	if errors.As(err, &joined) {
		return joined.Unwrap()
	}
	return []error{err}
}

func (f *proxyFlags) stop(p *proxy.Proxy, log *slog.Logger) {
	notify(log, "STOPPING=1")
	p.Unready()
	time.Sleep(f.delay)
	grace, cancel := context.WithTimeout(context.Background(), f.grace)
	defer cancel()
	if cut := p.Stop(grace); cut > 0 {
		log.Warn("grace period expired, connections reset", "connections", cut, "grace", f.grace)
	}
	delivered, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := sdp.WaitClosed(delivered); err != nil {
		log.Warn("shutdown timed out, some data may not have been delivered", "error", err)
	}
}

func notify(log *slog.Logger, state string) {
	if err := proxy.Notify(state); err != nil {
		log.Warn("sd_notify failed", "state", state, "error", err)
	}
}
