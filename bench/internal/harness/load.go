package harness

import (
	"context"
	"net"
)

// A load is the client's part of a case, on connections that stay open until the
// process ends. It is not safe for concurrent use.
type load interface {
	// run transfers n messages and returns when all have arrived.
	run(n int, times *times) error
}

// target is the contender and the address that a load dials.
type target struct {
	Contender
	address string
}

func (t target) dial(ctx context.Context) (net.Conn, error) { return t.Dial(ctx, t.address) }

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
	Setup:      {openSetup, serveLinks},
	HTTP:       {openHTTP, serveHTTP},
	GRPC:       {openGRPC, serveGRPC},
	GRPCInside: {openGRPCInside, serveGRPC},
	GRPCStream: {openGRPCStream, serveGRPC},
}
