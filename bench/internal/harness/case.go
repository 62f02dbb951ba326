package harness

import (
	"fmt"
	"time"
)

// A Case is a load under which contenders are compared.
type Case struct {
	Kind      Kind
	Size      int // bytes in a message or a response
	Conns     int // open connections, or those that are dialled at once
	Exchanges int // in the life of a connection, for kinds that vary it
}

// Kind is the type of a load.
type Kind string

// The kinds of loads.
const (
	RTT        Kind = "rtt"        // a message and its echo, one after the other
	RTTIdle    Kind = "rtt-idle"   // the same, each after a pause of 5 ms
	Cost100    Kind = "cost-100us" // the same, each after a pause of 100 µs, for the processor
	Cost200    Kind = "cost-200us" // time that a connection with little traffic uses
	Cost400    Kind = "cost-400us"
	Cost1000   Kind = "cost-1000us"
	Stream     Kind = "stream"      // messages one way, each a Write of its own
	StreamBuf  Kind = "stream-buf"  // the same, read through a bufio.Reader of 4 KB
	Duplex     Kind = "duplex"      // messages both ways at once
	Conns      Kind = "conns"       // open connections that do nothing
	ConnsBusy  Kind = "conns-busy"  // the same, with round trips on 1 % of them
	ConnsHome  Kind = "conns-home"  // the same as conns, after each connection has been in shared memory, if it can
	ConnsRead  Kind = "conns-read"  // the same as conns, with a Read on each that times out every 150 ms
	Setup      Kind = "setup"       // dial, one exchange, close
	SetupFirst Kind = "setup-first" // the same, each at an address of which nothing is known
	Burst      Kind = "burst"       // the same, on many connections at once; an operation is all of them
	Life       Kind = "life"        // dial at an address of which nothing is known, exchanges, close
	LifeAgain  Kind = "life-again"  // the same, after ten connections of 100 exchanges to the address
	HTTP       Kind = "http"        // net/http GET with keep-alive
	GRPC       Kind = "grpc"        // unary calls
	GRPCInside Kind = "grpc-inside" // the same, with both ends in the client's process
	GRPCStream Kind = "grpc-stream" // messages on one client stream
)

// Quick lists the cases of a quick run: every kind, few sizes.
var Quick = cases(
	sizes(RTT, 64, 64<<10, 1<<20),
	sizes(RTTIdle, 64),
	sizes(Cost100, 64),
	sizes(Cost200, 64),
	sizes(Cost400, 64),
	sizes(Cost1000, 64),
	sizes(Stream, 64, 4<<10, 64<<10, 1<<20),
	sizes(StreamBuf, 1<<20),
	sizes(Duplex, 64<<10),
	counts(Conns, 0, 100),
	counts(ConnsHome, 0, 100),
	counts(ConnsRead, 0, 2000),
	counts(ConnsBusy, 64, 100),
	sizes(Setup, 1),
	sizes(SetupFirst, 1),
	counts(Burst, 1, 200),
	lives(Life, 10, 100, 1000),
	lives(LifeAgain, 30, 100),
	counts(HTTP, 1<<10, 1, 16),
	sizes(GRPC, 1<<10),
	sizes(GRPCInside, 1<<10),
	sizes(GRPCStream, 1<<10),
)

// Full lists all cases, including those of Quick.
var Full = cases(
	sizes(RTT, 1, 64, 1<<10, 4<<10, 16<<10, 64<<10, 256<<10, 1<<20, 4<<20),
	sizes(RTTIdle, 64),
	sizes(Cost100, 64),
	sizes(Cost200, 64),
	sizes(Cost400, 64),
	sizes(Cost1000, 64),
	sizes(Stream, 64, 1<<10, 4<<10, 16<<10, 64<<10, 256<<10, 1<<20, 4<<20),
	sizes(StreamBuf, 1<<20),
	sizes(Duplex, 64, 4<<10, 64<<10, 1<<20, 4<<20),
	counts(Conns, 0, 1, 100, 1000, 8000),
	counts(ConnsHome, 0, 100, 1000),
	counts(ConnsRead, 0, 2000),
	counts(ConnsBusy, 64, 1, 100, 1000, 8000),
	sizes(Setup, 1),
	sizes(SetupFirst, 1),
	counts(Burst, 1, 200, 1000),
	lives(Life, 10, 50, 100, 1000, 10_000),
	lives(LifeAgain, 30, 100, 300),
	counts(HTTP, 1<<10, 1, 16),
	sizes(GRPC, 1<<10),
	sizes(GRPCInside, 1<<10),
	sizes(GRPCStream, 1<<10),
)

// pauses are the times that a kind waits before each round trip.
var pauses = map[Kind]time.Duration{
	RTTIdle:  5 * time.Millisecond,
	Cost100:  100 * time.Microsecond,
	Cost200:  200 * time.Microsecond,
	Cost400:  400 * time.Microsecond,
	Cost1000: time.Millisecond,
}

// Name returns the case's name in flags and tables, such as "stream/1MB" or
// "http/1KB/16".
func (c Case) Name() string {
	name := string(c.Kind)
	if c.Size > 0 {
		name += "/" + SizeName(c.Size)
	}
	if c.Conns != 1 || c.Kind.variesConns() {
		name += fmt.Sprintf("/%d", c.Conns)
	}
	if c.Exchanges > 0 {
		name += fmt.Sprintf("/%dx", c.Exchanges)
	}
	return name
}

// variesConns reports whether the kind is measured with several numbers of connections.
func (k Kind) variesConns() bool {
	return k.measuresMemory() || k == ConnsRead || k == HTTP || k == Burst
}

// measuresMemory reports whether the kind measures the memory and descriptors of connections.
func (k Kind) measuresMemory() bool { return k == Conns || k == ConnsHome || k == ConnsBusy }

// isIdle reports whether the connections of the kind carry nothing.
func (k Kind) isIdle() bool { return k == Conns || k == ConnsHome || k == ConnsRead }

// transfers reports whether the kind moves bytes on one open connection.
func (k Kind) transfers() bool { return k == RTT || k == Stream || k == StreamBuf || k == Duplex }

// livesOnly reports whether the kind is about how a connection begins and ends.
func (k Kind) livesOnly() bool {
	return k == Setup || k == SetupFirst || k == Burst || k == Life || k == LifeAgain
}

// learns reports whether the kind is about what a program has learned of an address, so that it needs fresh ones.
func (k Kind) learns() bool { return k == SetupFirst || k == Life || k == LifeAgain }

// SizeName formats a number of bytes, such as "64B" or "1MB".
func SizeName(n int) string {
	switch {
	case n >= 1<<20 && n%(1<<20) == 0:
		return fmt.Sprintf("%dMB", n>>20)
	case n >= 1<<10 && n%(1<<10) == 0:
		return fmt.Sprintf("%dKB", n>>10)
	}
	return fmt.Sprintf("%dB", n)
}

func sizes(kind Kind, sizes ...int) (all []Case) {
	for _, size := range sizes {
		all = append(all, Case{Kind: kind, Size: size, Conns: 1})
	}
	return all
}

func counts(kind Kind, size int, conns ...int) (all []Case) {
	for _, n := range conns {
		all = append(all, Case{Kind: kind, Size: size, Conns: n})
	}
	return all
}

func lives(kind Kind, exchanges ...int) (all []Case) {
	for _, n := range exchanges {
		all = append(all, Case{Kind: kind, Size: 64, Conns: 1, Exchanges: n})
	}
	return all
}

func cases(groups ...[]Case) (all []Case) {
	for _, group := range groups {
		all = append(all, group...)
	}
	return all
}
