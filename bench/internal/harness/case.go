package harness

import (
	"fmt"
	"time"
)

// A Case is one load that contenders are compared under.
type Case struct {
	Pattern Pattern
	Size    int // bytes in a message
	Metric  Metric
}

// Cases are all that there are.
var Cases = []Case{
	{RoundTrip, 64, Latency},
	{Stream, 64, MessageRate},
	{Stream, 4 << 10, ByteRate},
	{Stream, 64 << 10, ByteRate},
	{Stream, 1 << 20, ByteRate},
	{Receive, 64, MessageRate},
	{Receive, 1 << 20, ByteRate},
}

// Name is the case as flags and tables call it, such as "stream/1MB".
func (c Case) Name() string { return c.Pattern.String() + "/" + sizeName(c.Size) }

func sizeName(n int) string {
	switch {
	case n >= 1<<20 && n%(1<<20) == 0:
		return fmt.Sprintf("%dMB", n>>20)
	case n >= 1<<10 && n%(1<<10) == 0:
		return fmt.Sprintf("%dKB", n>>10)
	}
	return fmt.Sprintf("%dB", n)
}

// Metric is what a case is about.
type Metric int

// The metrics there are.
const (
	Latency     Metric = iota // microseconds a message
	MessageRate               // millions of messages a second
	ByteRate                  // MB/s
)

// Unit names the unit of Of.
func (m Metric) Unit() string { return [...]string{"µs", "Mmsg/s", "MB/s"}[m] }

// Of is the metric of n messages of size bytes that took the time given.
func (m Metric) Of(n, size int, took time.Duration) float64 {
	seconds := took.Seconds()
	switch m {
	case Latency:
		return seconds * 1e6 / float64(n)
	case MessageRate:
		return float64(n) / 1e6 / seconds
	default:
		return float64(n) * float64(size) / 1e6 / seconds
	}
}

// CostUnit names the unit of Cost.
func (m Metric) CostUnit() string {
	if m == ByteRate {
		return "s/GB"
	}
	return "µs/msg"
}

// Cost is the processor time that n messages of size bytes cost, for each
// gigabyte where the case is about bytes, for each message where it is not.
func (m Metric) Cost(n, size int, cpu time.Duration) float64 {
	if m == ByteRate {
		return cpu.Seconds() * 1e9 / (float64(n) * float64(size))
	}
	return cpu.Seconds() * 1e6 / float64(n)
}
