package harness

import (
	"context"
	"fmt"
	"net"
	"sync/atomic"
)

// A load is the client's part of a case, on connections that stay open until the
// process ends. It is not safe for concurrent use.
type load interface {
	// run transfers n messages and returns when all have arrived.
	run(n int, times *times) error
}

// A preparer is a load that has something to do before a turn, which is not measured.
type preparer interface{ prepare() error }

// target is the contender and the address that a load dials.
type target struct {
	Contender
	address string
	load    Case
}

func (t target) dial(ctx context.Context) (net.Conn, error) { return t.Dial(ctx, t.address, t.load) }

// fresh returns the target at an address that this process has not dialled. The server listens on all of 127/8.
func (t target) fresh() target {
	if _, port, err := net.SplitHostPort(t.address); err == nil && t.Local {
		n := dialled.Add(1)
		t.address = net.JoinHostPort(fmt.Sprintf("127.%d.%d.%d", 1+n>>16%254, n>>8&0xff, n&0xff), port)
	}
	return t
}

// dialled counts addresses. Most runs have fewer than there are.
var dialled atomic.Uint32

// kinds maps each kind of case to the client's and the server's part.
var kinds = map[Kind]struct {
	open  func(context.Context, target, Case) (load, error)
	serve func(net.Listener) error
}{
	RTT:        {openRoundTrips, serveLinks},
	RTTIdle:    {openRoundTrips, serveLinks},
	Cost100:    {openRoundTrips, serveLinks},
	Cost200:    {openRoundTrips, serveLinks},
	Cost400:    {openRoundTrips, serveLinks},
	Cost1000:   {openRoundTrips, serveLinks},
	Stream:     {openStream, serveLinks},
	StreamBuf:  {openStream, serveLinks},
	Duplex:     {openStream, serveLinks},
	Conns:      {openIdle, serveLinks},
	ConnsBusy:  {openRoundTrips, serveLinks},
	ConnsHome:  {openHome, serveLinks},
	ConnsRead:  {openReading, serveLinks},
	Setup:      {openSetup, serveLinks},
	SetupFirst: {openSetup, serveLinks},
	Burst:      {openBurst, serveLinks},
	Life:       {openLife, serveLinks},
	LifeAgain:  {openLife, serveLinks},
	HTTP:       {openHTTP, serveHTTP},
	GRPC:       {openGRPC, serveGRPC},
	GRPCInside: {openGRPCInside, serveGRPC},
	GRPCStream: {openGRPCStream, serveGRPC},
}
