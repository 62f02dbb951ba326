package harness

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"

	"github.com/gosdp/gosdp/rdma"
	_ "github.com/gosdp/gosdp/rdma/verbs" // for machines with an RDMA device at the loopback address
	"github.com/gosdp/gosdp/sdp"
	"github.com/gosdp/gosdp/wire"
)

// A Contender is a way to connect two programs. To add one, append its listen and
// dial functions to [Contenders].
type Contender struct {
	Name  string
	About string // one line for the report
	// Probe returns why the contender is not available here, or nil if it is. A nil
	// Probe means that the contender is always available.
	Probe func() error
	// OnRequest contenders are measured only if the command line names them.
	OnRequest bool
	// Only limits the kinds of cases under which the contender is measured. Nil means all but the lives of connections.
	Only func(Kind) bool
	// Moves says that connections move to shared memory, in which cases about bytes measure them.
	Moves bool
	// Local says that the listener can have any address of 127/8.
	Local bool
	// Listen is called in one process. Dial is called in the other, with the
	// address of the listener.
	Listen func(address string) (net.Listener, error)
	Dial   func(ctx context.Context, address string, load Case) (net.Conn, error)
	// Far contenders run each process in its own network namespace, like two hosts
	// that are connected by a cable. The server is at farServer.
	Far bool
}

// Contenders to which ratios refer.
const (
	Baseline   = "tcp"
	UnixSocket = "unix"  // what two programs of one host use if they care about speed
	Limit      = "limit" // what two processes and shared memory can do at all
)

// Measures reports whether the contender is measured under a kind of case.
func (c Contender) Measures(k Kind) bool {
	if c.Only != nil {
		return c.Only(k)
	}
	return k.forAll()
}

func every(Kind) bool { return true }

// forAll reports whether all contenders are measured under the kind, if they have no Only.
func (k Kind) forAll() bool { return k == Setup || !k.livesOnly() && k != ConnsHome && k != ConnsRead }

// Contenders lists all contenders, the baseline first. They take turns in this
// order.
var Contenders = slices.Concat([]Contender{
	{
		Name:   Baseline,
		About:  "package net over loopback",
		Only:   every,
		Local:  true,
		Listen: listen("tcp"),
		Dial:   dial("tcp"),
	},
	{
		Name:   UnixSocket,
		About:  "package net, a Unix stream socket",
		Listen: listenUnix,
		Dial:   dial("unix"),
	},
	{
		Name:   Limit,
		About:  "a bare ring in memory that two processes share, without checks, that polls",
		Probe:  bareRings,
		Only:   Kind.transfers,
		Listen: listenBare,
		Dial:   dialBare,
	},
}, overDevices(), []Contender{
	overSDP("sdp-iwarp-crc", "sdp-iwarp with CRC32C, as between two hosts; on one host the default is without",
		sdp.Config{Devices: []string{"iwarp"}, CRC: true}),
	{
		Name:   "sdp-shm",
		About:  "sdp.Dial and sdp.Listen on network tcp: connections begin on TCP, and cases about bytes measure them in shared memory",
		Only:   every,
		Moves:  true,
		Local:  true,
		Listen: listenMoving,
		Dial:   dialMoving,
	},
	{
		Name:   "dial-plain",
		About:  "sdp.Dial on network tcp to a server of package net: what SDP costs a connection that cannot move",
		Only:   Kind.livesOnly,
		Local:  true,
		Listen: listen("tcp"),
		Dial:   dialMoving,
	},
	{
		Name:   "listen-plain",
		About:  "sdp.Listen on network tcp for a client of package net: the same for a server",
		Only:   Kind.livesOnly,
		Local:  true,
		Listen: listenMoving,
		Dial:   dial("tcp"),
	},
	overYamux(),
	overQUIC(),
	// These serve to choose the devices' thresholds.
	onRequest(overSDP("sdp-iwarp-copy", "iwarp, every byte copied",
		sdp.Config{Devices: []string{"iwarp"}, ZCopyThreshold: -1})),
	onRequest(overSDP("sdp-iwarp-zcopy", "iwarp, Writes of more than 16 KB advertised",
		sdp.Config{Devices: []string{"iwarp"}, ZCopyThreshold: 16 << 10})),
	far("far-tcp", "package net between two network namespaces", net.Listen, dial("tcp")),
	far("far-tcp-again", "the same again, to show how much two equal contenders differ", net.Listen, dial("tcp")),
	far("far-sdp", "SDP with the default configuration, on network tcp, between two network namespaces", sdp.Listen,
		func(ctx context.Context, address string, _ Case) (net.Conn, error) {
			return requireTCP(new(sdp.Dialer).DialContext(ctx, "tcp", address))
		}),
	farShm(),
})

// overDevices are the RDMA devices of the library.
func overDevices() (all []Contender) {
	for _, known := range wire.KnownDevices {
		c := overSDP("sdp-"+known.Name, "SDP over the RDMA device "+known.Name, sdp.Config{Devices: []string{known.Name}})
		c.Only = func(k Kind) bool { return k.forAll() || k == ConnsRead }
		all = append(all, c)
	}
	return all
}

// farShm is shared memory between two network namespaces that share a directory, as containers do.
func farShm() Contender {
	c := far("far-shm", "SDP over shared memory, between two network namespaces that share the directory SDP_SHM_DIR", sdp.Listen, dialMoving)
	c.Moves = true
	c.Probe = func() error {
		if os.Getenv("SDP_SHM_DIR") == "" {
			return errors.New("SDP_SHM_DIR is not set")
		}
		return canLinkNamespaces()
	}
	return c
}

// farServer and farClient are the addresses of the two processes.
const (
	farServer = "10.88.0.1"
	farClient = "10.88.0.2"
)

func far(name, about string, listen func(network, address string) (net.Listener, error), dial func(context.Context, string, Case) (net.Conn, error)) Contender {
	return Contender{
		Name: name, About: about, OnRequest: true, Far: true,
		Probe:  canLinkNamespaces,
		Listen: func(string) (net.Listener, error) { return listen("tcp", farServer+":0") },
		Dial:   dial,
	}
}

func onRequest(c Contender) Contender {
	c.OnRequest = true
	return c
}

// Find returns the contender with the given name.
func Find(name string) (Contender, error) {
	for _, c := range Contenders {
		if c.Name == name {
			return c, nil
		}
	}
	return Contender{}, fmt.Errorf("unknown contender %q", name)
}

// Absent returns why the contender cannot be measured here, or nil if it can.
func (c Contender) Absent() error {
	if c.Probe == nil {
		return nil
	}
	return c.Probe()
}

// Addresses to listen on.
const (
	loopback   = "localhost:0"
	everywhere = "0.0.0.0:0"
)

func listen(network string) func(string) (net.Listener, error) {
	return func(address string) (net.Listener, error) { return net.Listen(network, address) }
}

func dial(network string) func(context.Context, string, Case) (net.Conn, error) {
	return func(ctx context.Context, address string, _ Case) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, address)
	}
}

func listenMoving(address string) (net.Listener, error) { return sdp.Listen("tcp", address) }

func dialMoving(ctx context.Context, address string, _ Case) (net.Conn, error) {
	return new(sdp.Dialer).DialContext(ctx, "tcp", address)
}

// requireTCP fails unless c is a *net.TCPConn, as package net would return.
func requireTCP(c net.Conn, err error) (net.Conn, error) {
	if err != nil {
		return nil, err
	}
	if _, ok := c.(*net.TCPConn); !ok {
		c.Close()
		return nil, fmt.Errorf("dial: got a %T, want *net.TCPConn", c)
	}
	return c, nil
}

// overSDP returns SDP over the one RDMA device that config names.
func overSDP(name, about string, config sdp.Config) Contender {
	device := config.Devices[0]
	// A busy machine needs long to set up thousands of connections at once.
	config.ReplyTimeout, config.HandshakeTimeout, config.StepUpTimeout = openTime, openTime, openTime
	return Contender{
		Name:  name,
		About: about,
		Probe: func() error {
			d, ok := rdma.LookupDevice(device)
			if !ok {
				return fmt.Errorf("unknown device %s", device)
			}
			return d.Probe()
		},
		Listen: func(address string) (net.Listener, error) {
			listen := sdp.ListenConfig{Config: &config}
			return listen.Listen(context.Background(), "sdp", address)
		},
		Dial: func(ctx context.Context, address string, _ Case) (net.Conn, error) {
			dialer := sdp.Dialer{Config: &config}
			conn, err := dialer.DialContext(ctx, "sdp", address)
			if err != nil {
				return nil, err
			}
			// If the connection fell back to another device, the result would
			// appear under the wrong name.
			if got := conn.(*sdp.Conn).Device(); got != device {
				conn.Close()
				return nil, fmt.Errorf("dial: connection uses device %s, want %s", got, device)
			}
			return conn, nil
		},
	}
}

// listenUnix listens on a socket in a new directory, which Close removes.
func listenUnix(string) (net.Listener, error) {
	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("unix", filepath.Join(dir, "socket"))
	if err != nil {
		return nil, errors.Join(err, os.Remove(dir))
	}
	return inDirectory{listener, dir}, nil
}

type inDirectory struct {
	net.Listener
	dir string
}

func (l inDirectory) Close() error {
	return errors.Join(l.Listener.Close(), os.Remove(l.dir))
}
