package harness

import "time"

// A Metric is one result of a turn.
type Metric struct {
	Name  string
	Unit  string
	Value float64
}

// The names of metrics. Low latencies, memory and CPU times are better; high rates
// are better.
const (
	P50         = "p50"  // of single operations
	P99         = "p99"  // the same
	P999        = "p999" // the same
	BytesPerS   = "bytes_per_s"
	MsgsPerS    = "msgs_per_s"
	ReqPerS     = "req_per_s"
	CPUPerGB    = "cpu_s_per_gb"   // of both processes, user and system
	CPUPerMReq  = "cpu_s_per_mreq" // the same, per million requests or messages
	CPUPerS     = "cpu_s_per_s"    // the same, per second with many connections
	Allocs      = "allocs"         // of both processes, per request or message
	RSS         = "rss"            // resident bytes per connection, of the process that needs more
	RSSShared   = "rss_shared"     // the part of RSS that is shared memory
	RSSPrivate  = "rss_private"    // the part of RSS that is neither shared nor goroutine stacks
	Goroutines  = "goroutines"     // per connection, of the process that needs more
	Stacks      = "stacks"         // goroutine stacks
	FDs         = "fds"            // descriptors per connection, of the process that needs more
	ofClient    = "_client"        // appended to RSS and FDs: the figure of the client alone
	ofServer    = "_server"        // the same for the server
	memoryConns = 100              // memory is not reported for fewer connections
)

// Metrics returns the results of a turn of the case.
func (c Case) Metrics(t Turn) (all []Metric) {
	add := func(name, unit string, value float64) {
		all = append(all, Metric{name, unit, value})
	}
	n := float64(t.Messages)
	bytes := n * float64(c.Size)
	if c.Kind == Duplex {
		bytes, n = 2*bytes, 2*n
	}
	seconds := t.Took.Seconds()

	if c.Kind.isIdle() {
		return c.memoryMetrics(t)
	}
	for _, l := range []struct {
		name  string
		value float64
	}{{P50, t.Latency.P50}, {P99, t.Latency.P99}, {P999, t.Latency.P999}} {
		if l.value > 0 {
			add(l.name, "µs", l.value)
		}
	}
	switch c.Kind {
	case Stream, StreamBuf, Duplex, GRPCStream:
		add(BytesPerS, "B/s", bytes/seconds)
		add(MsgsPerS, "1/s", n/seconds)
		add(CPUPerGB, "s/GB", t.CPU.Seconds()*1e9/bytes)
	case RTTIdle, Cost100, Cost200, Cost400, Cost1000: // the rate follows from the pauses
	default:
		add(ReqPerS, "1/s", n/seconds)
	}
	add(CPUPerMReq, "s/1e6", t.CPU.Seconds()*1e6/n)
	add(Allocs, "1", float64(t.Allocs)/n)
	if c.Kind == ConnsBusy {
		all = append(all, c.memoryMetrics(t)...)
	}
	return all
}

// memoryMetrics returns what holding the connections costs.
func (c Case) memoryMetrics(t Turn) []Metric {
	all := []Metric{{CPUPerS, "s/s", t.CPU.Seconds() / t.Took.Seconds()}}
	if t.Full[0].RSS == 0 {
		return all // not measured, or not known on this system
	}
	// A connection's share is the growth of the process divided by the number of connections.
	var each [2]float64
	connection := func(name, unit string, of func(Memory) uint64) {
		for side := range each {
			each[side] = (float64(of(t.Full[side])) - float64(of(t.Empty[side]))) / float64(c.Conns)
		}
		all = append(all, Metric{name, unit, max(0, each[0], each[1])})
	}
	sides := func(name, unit string) {
		all = append(all, Metric{name + ofClient, unit, each[0]}, Metric{name + ofServer, unit, each[1]})
	}
	connection(FDs, "1", func(m Memory) uint64 { return m.FDs })
	sides(FDs, "1")
	connection(Goroutines, "1", func(m Memory) uint64 { return m.Goroutines })
	if c.Conns < memoryConns {
		return all
	}
	connection(RSS, "B", func(m Memory) uint64 { return m.RSS })
	sides(RSS, "B")
	connection(RSSShared, "B", func(m Memory) uint64 { return m.Shared })
	connection(RSSPrivate, "B", func(m Memory) uint64 { return m.RSS - min(m.RSS, m.Shared+m.Stacks) })
	connection(Stacks, "B", func(m Memory) uint64 { return m.Stacks })
	return all
}

// idleTurn reports whether the length of a turn is determined by its pauses, and if
// so how many messages it has.
func (c Case) idleTurn(turn time.Duration) (n int, ok bool) {
	if pause := pauses[c.Kind]; pause > 0 {
		// Such a turn is longer, because it has few messages.
		return max(5, int(3*turn/pause)), true
	}
	if c.Kind == ConnsRead {
		return int(readTimeout / time.Millisecond), true // a Read on each connection
	}
	if c.Kind.isIdle() {
		return max(10, int(turn/time.Millisecond)), true
	}
	return 0, false
}
