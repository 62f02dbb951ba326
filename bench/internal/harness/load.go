package harness

import (
	"context"
	"net"
)

// A load is a case's work in the client, on connections that are open until the
// process ends. One goroutine at a time uses it.
type load interface {
	// run has n messages cross and returns when all have arrived.
	run(n int, times *times) error
}

// target is what a load dials.
type target struct {
	Contender
	address string
}

func (t target) dial(ctx context.Context) (net.Conn, error) { return t.Dial(ctx, t.address) }

// kinds are what the client and the server do under each kind of case.
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
	Setup:      {openSetup, serveLinks},
	HTTP:       {openHTTP, serveHTTP},
	GRPC:       {openGRPC, serveGRPC},
	GRPCStream: {openGRPCStream, serveGRPC},
}
